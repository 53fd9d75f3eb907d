"""JSON of requests: what is refused."""

from __future__ import annotations

import pytest

from dmls_core.data.request_json import load_json
from dmls_core.errors import DataError


@pytest.mark.parametrize(
    ("content", "message", "place"),
    [
        ('{"a": 1, "b": 2, "a": 3}', "the key 'a' occurs twice in an object", (None, None)),
        ('[{"a": {"b": 1, "b": 1}}]', "the key 'b' occurs twice", (None, None)),
        ('{"a": NaN}', "NaN is not a number of JSON", (None, None)),
        ('{"a": -Infinity}', "-Infinity is not a number of JSON", (None, None)),
        ('[1e999]', "1e999 is too large a number", (None, None)),
        ('[\n  1,\n  2 3]', "not JSON: Expecting ',' delimiter", (3, 5)),
        ("[" * 100_000, "not JSON", (None, None)),
        (b'"\xff"', "not JSON", (None, None)),
        ("9" * 5000, "not JSON", (None, None)),
    ],
    ids=lambda value: str(value)[:24],
)  # fmt: skip
def test_what_programs_read_in_different_ways_is_refused(content, message: str, place):
    with pytest.raises(DataError, match=message) as raised:
        load_json(content)
    assert (raised.value.issues[0].line, raised.value.issues[0].column) == place


def test_other_json_is_read_as_it_is():
    assert load_json(b'{"a": [1, 1.5, -0.0, 1e300, true, null], "b": {"a": "NaN"}}') == {
        "a": [1, 1.5, -0.0, 1e300, True, None],
        "b": {"a": "NaN"},
    }
