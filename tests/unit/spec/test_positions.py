"""Errors point at the key that is wrong, whatever way the file is written."""

from __future__ import annotations

from typing import Any

import pytest
import tomli
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from dmls_core.spec.positions import Lines, Path, Positions, tokens

TEXT = r"""a = 1
[columns]
"x y" . 'b'.c = [1, [2, # ] not a bracket
  3], {k = "v", "l\u0041"."m" = [
   5 ]}]
deep.er = ''' [not] a = table
[nor] this ''' # comment
lit = "' \" [ ' # {"
[[arr]]
q=1
[arr.sub]
z = '[[ {'
[[arr]]
q=2
[[arr.inner]]
w = 1979-05-27T07:32:00Z
[last]
v = 2"""


@pytest.mark.parametrize(
    ("path", "place"),
    [
        (("a",), (1, 1)),
        (("columns",), (2, 2)),
        (("columns", "x y"), (3, 1)),
        (("columns", "x y", "b"), (3, 9)),
        (("columns", "x y", "b", "c"), (3, 13)),
        (("columns", "x y", "b", "c", 1), (3, 21)),
        (("columns", "x y", "b", "c", 1, 1), (4, 3)),
        (("columns", "x y", "b", "c", 2, "k"), (4, 8)),
        (("columns", "x y", "b", "c", 2, "lA", "m"), (4, 27)),
        (("columns", "x y", "b", "c", 2, "lA", "m", 0), (5, 4)),
        (("columns", "deep", "er"), (6, 6)),
        (("columns", "lit"), (8, 1)),
        (("arr", 0, "q"), (10, 1)),
        (("arr", 0, "sub", "z"), (12, 1)),
        (("arr", 1, "q"), (14, 1)),
        (("arr", 1, "inner", 0, "w"), (16, 1)),
        (("last", "v"), (18, 1)),
        (("last", "missing"), (17, 2)),
        (("columns", "x y", "b", "c", 1, 9, "missing"), (3, 21)),
        (("nowhere",), (1, 1)),
    ],
)
def test_every_way_to_write_a_key(path: Path, place: tuple[int, int]) -> None:
    tomli.loads(TEXT)
    assert Positions(TEXT).find(path) == place


KEYS = st.text(max_size=8) | st.sampled_from(["a", "b", "a b"])
VALUES = st.recursive(
    st.booleans() | st.integers(-9, 9) | st.text(max_size=6) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(KEYS, VALUES, max_size=6), st.booleans())
def test_every_key_of_any_document_has_its_position(data: dict[str, Any], multiline: bool) -> None:
    text = tomli_w.dumps(data, multiline_strings=multiline)
    positions = Positions(text)
    lines = text.split("\n")

    def check(path: Path, value: object) -> None:
        if path and isinstance(path[-1], str):
            assert path in positions
            line, column = positions.find(path)
            assert tomli.loads(_key_at(lines[line - 1][column - 1 :]) + " = 1") == {path[-1]: 1}
        if isinstance(value, dict):
            for key, child in value.items():
                check((*path, key), child)
        elif isinstance(value, list):
            for index, child in enumerate(value):
                check((*path, index), child)

    check((), tomli.loads(text))


def _key_at(line: str) -> str:
    token = next(tokens(line))
    raw = line[token.start : token.end]
    return raw.split(".")[0] if token.type == "bare" else raw


@given(st.text() | st.text(alphabet="[]{}=,.\"'\\ \n#a1", max_size=200))
def test_any_text_is_indexed(text: str) -> None:
    positions = Positions(text)
    assert positions.find(("a", 0, "b")) >= (1, 1)


@given(st.text(alphabet="ab\n", max_size=50))
def test_lines_and_columns_count_from_one(text: str) -> None:
    lines = Lines(text)
    for offset in range(len(text)):
        before = text[:offset]
        assert lines.position(offset) == (before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1)
