from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from dmls_core.web.services.submissions import mark_floats, unmark_floats

PLAIN = st.recursive(
    st.one_of(
        st.booleans(), st.integers(-99, 99), st.floats(allow_nan=False, allow_infinity=False), st.text()
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text(max_size=4).filter(lambda name: name != "float"), inner, max_size=3),
    ),
    max_leaves=8,
)


def through_javascript(value: object) -> object:
    """Return what a browser sends back: it writes 1.0 as 1."""
    if isinstance(value, dict):
        return {name: through_javascript(part) for name, part in value.items()}
    if isinstance(value, list):
        return [through_javascript(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


@given(PLAIN)
def test_integral_floats_survive_javascript(value: object) -> None:
    back = unmark_floats(json.loads(json.dumps(through_javascript(mark_floats(value)))))

    assert back == value
    assert repr(back).replace("-0.0", "0.0") == repr(value).replace("-0.0", "0.0")
