"""A text of a user is shown, and not obeyed."""

from __future__ import annotations

import pytest
import tomli
from hypothesis import given
from hypothesis import strategies as st

from dmls_core.spec.toml_io import toml_text
from dmls_core.visible_text import visible, visible_lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("naïve 漢字 :id: [b]", "naïve 漢字 :id: [b]"),
        ("price\n(EUR)\t\r", r"price\n(EUR)\t\r"),
        ("\x1b[2J\x9b1A\x7f", r"\u001b[2J\u009b1A\u007f"),
        ("a\u202eb\u200b\u2028", r"a\u202eb\u200b\u2028"),
        ("\U000e0001\udc80", r"\U000e0001\udc80"),
    ],
)
def test_what_is_obeyed_or_invisible_is_an_escape(text: str, shown: str):
    assert visible(text) == shown
    assert visible(shown) == shown
    assert visible_lines(f"{text}\nb".replace("\n", "")).isprintable()


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_shown_name_can_be_copied_into_a_spec(text: str):
    document = toml_text({"columns": {"target": text}})
    assert visible_lines(document) == document
    assert tomli.loads(document) == {"columns": {"target": text}}
