"""Whatever the bytes are: a spec or a ``SpecError``, and nothing else."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from dmls_core.errors import SpecError, ValidationIssue
from dmls_core.models import CATALOGUE, load_spec
from dmls_core.settings import SpecLimits
from dmls_core.spec import ModelDefinition, Spec, parse_spec
from dmls_core.spec.tables import RESERVED, TABLES

LIMITS = SpecLimits()

FULL = b"""\
model = "xgboost-classifier"
n_trials = 7
[columns]
features = ["a", "b", "sepal length (cm)"]
target = "y"
categorical = ["b"]
drop = ["c"]
[data]
path = "part-{date}-*.csv"
window = 4
[search]
strategy = "tpe"
metric = "log_loss"
timeout = 600
[evaluation]
holdout = 0.25
[expectations.columns."sepal length (cm)"]
min = 0
max = 10.5
[schedule]
cron = "0 6 * * mon"
timezone = "Europe/Vienna"
[deploy]
mode = "auto"
min_metric = 0.9
[resources]
memory = "8 GiB"
[tags]
"cost centre" = "1234"
[learning_rate]
min = 0.01
max = 1
log = true
[max_depth]
values = [3, 4, "none"]
"""


def check(issues: Sequence[ValidationIssue]) -> None:
    assert issues
    for issue in issues:
        assert issue.message
        assert issue.line
        assert json.dumps(issue.as_json())
        assert str(issue).isprintable()


def admit(source: bytes) -> Spec | None:
    """Return the spec; nothing, if it was refused as it must be."""
    try:
        spec = parse_spec(source, CATALOGUE, limits=LIMITS)
    except SpecError as error:
        check(error.issues)
        return None
    assert Spec.from_json(json.loads(spec.canonical())).canonical() == spec.canonical()
    return spec


@given(st.binary(max_size=300))
def test_any_bytes(source: bytes) -> None:
    admit(source)


@given(st.text(alphabet="[]{}=,.\"'\\# \n\r\tab01_-+:eE", max_size=200))
def test_anything_like_toml(source: str) -> None:
    admit(source.encode())


def test_the_seed_of_mutations_is_valid() -> None:
    assert admit(FULL) is not None


@given(st.randoms(use_true_random=False), st.integers(1, 4))
def test_a_spec_with_bytes_changed_cut_and_copied(rnd: random.Random, mutations: int) -> None:
    source = bytearray(FULL)
    for _ in range(mutations):
        start, end = sorted(rnd.randrange(len(source) + 1) for _ in range(2))
        end = min(end, start + rnd.choice((1, 3, 40)))
        piece = bytes(source[start:end])
        source[start:end] = rnd.choice(
            (
                b"",
                piece * 2,
                bytes(rnd.randrange(256) for _ in piece),
                b"[[",
                b"'''",
                b"9" * 40,
                b"\n",
                b"nan",
            )
        )
    admit(bytes(source))


NAMES = sorted({name for model in CATALOGUE.values() for name in model.hyperparameters})
FIELDS = sorted({field for table in TABLES.values() for field in table.model_fields})
WORDS = st.sampled_from(
    [
        "none",
        "sqrt",
        "gini",
        "auto",
        "tpe",
        "grid",
        "gpu",
        "cpu",
        "csv",
        "time",
        "y",
        "a",
        "@daily",
        "8 GiB",
        "",
        "[",
    ]
) | st.text(max_size=5)
SCALARS = (
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.integers(0, 20) | st.floats() | WORDS | st.dates()
)
VALUES = st.recursive(
    SCALARS | st.lists(SCALARS, max_size=4),
    lambda inner: st.dictionaries(st.sampled_from([*FIELDS, "a"]), inner, max_size=3),
    max_leaves=6,
)
SPACES = st.dictionaries(
    st.sampled_from(["min", "max", "step", "log", "values", "value", "low"]),
    SCALARS | st.lists(SCALARS, max_size=4),
    max_size=4,
)
TABLE_OF = {
    **dict.fromkeys(sorted(CATALOGUE), st.dictionaries(st.sampled_from(NAMES), SPACES, max_size=2)),
    **dict.fromkeys(NAMES, SPACES),
    **dict.fromkeys(RESERVED, VALUES),
}


@given(
    st.sampled_from(sorted(CATALOGUE)) | st.lists(st.sampled_from(sorted(CATALOGUE)), max_size=3),
    st.lists(st.sampled_from(sorted(TABLE_OF)), max_size=5, unique=True),
    st.data(),
)
def test_any_structure(model: str | list[str], names: list[str], data: st.DataObject) -> None:
    document = {"model": model, "columns": {"target": "y"}}
    document |= {name: data.draw(TABLE_OF[name]) for name in names}
    admit(tomli_w.dumps(document).encode())


def _legal(model: ModelDefinition, data: st.DataObject) -> dict[str, Any]:
    """Draw a table for some hyperparameters that is legal by the catalogue's own word."""
    tables: dict[str, Any] = {}
    for name in data.draw(st.lists(st.sampled_from(sorted(model.hyperparameters)), unique=True, max_size=4)):
        definition = model.hyperparameters[name]
        if name == "max_samples":
            continue  # Bound to bootstrap.
        if definition.kind == "bool":
            tables[name] = {"value": data.draw(st.booleans())}
        elif definition.kind == "choice":
            tables[name] = {"values": list(definition.choices)}
        else:
            low, high = definition.low, min(definition.high or 0, 1000)
            assert low is not None
            drawn = st.integers(int(low) + 1, int(high)) if high > 2 else st.floats(0.1, high)
            values = data.draw(st.lists(drawn, unique=True, min_size=2, max_size=2).map(sorted))
            tables[name] = data.draw(
                st.sampled_from(
                    [{"min": values[0], "max": values[1]}, {"values": values}, {"value": values[0]}]
                )
            )
    return tables


@given(st.sampled_from(sorted(CATALOGUE)), st.data())
def test_legal_values_of_the_catalogue_are_accepted(name: str, data: st.DataObject) -> None:
    tables = _legal(CATALOGUE[name], data)
    document = {"model": name, "columns": {"target": "y"}, **tables}
    spec = load_spec(tomli_w.dumps(document).encode(), limits=LIMITS)
    assert set(spec.models[0].hyperparameters) == set(CATALOGUE[name].hyperparameters)
    assert set(spec.models[0].searched) <= set(tables or CATALOGUE[name].search)


JSON_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
JSON = st.recursive(JSON_SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


@given(JSON)
def test_any_json(data: Any) -> None:
    with pytest.raises(SpecError):
        Spec.from_json(data)


@given(st.data())
def test_a_stored_spec_with_a_part_replaced(data: st.DataObject) -> None:
    stored = json.loads(parse_spec(FULL, CATALOGUE).canonical())
    node: Any = stored
    key: Any = data.draw(st.sampled_from(sorted(stored)))
    while isinstance(node[key], dict) and node[key] and data.draw(st.booleans()):
        node = node[key]
        key = data.draw(st.sampled_from(sorted(node)))
    node[key] = data.draw(JSON)
    try:
        spec = Spec.from_json(stored)
    except SpecError:
        return
    assert Spec.from_json(json.loads(spec.canonical())).sha256 == spec.sha256
