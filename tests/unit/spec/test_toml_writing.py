from __future__ import annotations

import math
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmls_core.errors import SpecError
from dmls_core.spec.toml_io import toml_text

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
SCALARS = st.one_of(
    st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False), TEXT
)
VALUES = st.one_of(
    SCALARS, st.lists(SCALARS, max_size=4), st.lists(st.lists(SCALARS, max_size=2), max_size=2)
)
DOCUMENTS = st.recursive(
    st.dictionaries(TEXT, VALUES, max_size=4),
    lambda inner: st.dictionaries(TEXT, st.one_of(VALUES, inner), max_size=4),
    max_leaves=12,
)


@given(DOCUMENTS)
def test_written_documents_round_trip(document: dict[str, object]) -> None:
    assert tomllib.loads(toml_text(document)) == document


def test_the_order_of_a_written_document() -> None:
    document = {
        "max_depth": {"min": 2, "max": 8},
        "columns": {"target": "y"},
        "model": "a",
        "b": {"c": {"value": 1}},
    }

    assert toml_text(document) == (
        'model = "a"\n\n[columns]\ntarget = "y"\n\n[max_depth]\nmin = 2\nmax = 8\n\n[b.c]\nvalue = 1\n'
    )


@pytest.mark.parametrize("value", [math.nan, math.inf, None, b"x", object(), "\ud800"])
def test_values_outside_toml_are_rejected(value: object) -> None:
    with pytest.raises(SpecError, match="cannot be written"):
        toml_text({"a": value})
