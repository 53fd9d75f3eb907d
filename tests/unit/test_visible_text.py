"""A text of a user is shown, and not obeyed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import unicodedata
from pathlib import Path

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


STATIC = Path(__file__).parents[2] / "dmls_core/web/static"
ESCAPED = """
import { visible } from "%s";
const all = {};
for (let code = 0; code < 0xe1000; code += code === 0x1ffff ? 0xc0001 : 1) {
  const character = String.fromCodePoint(code);
  if (visible(character) !== character) all[code] = visible(character);
}
console.log(JSON.stringify(all));
"""


@pytest.mark.skipif(not shutil.which("node"), reason="Node.js is not installed")
def test_the_page_has_the_same_escapes():
    program = ESCAPED % (STATIC / "visible_text.js").as_uri()
    command = ["node", "--input-type=module", "-e", program]
    escaped = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)
    # Unicode of Python and that of Node.js may be of different years: characters new to one are left out.
    codes = [*range(0x20000), *range(0xE0000, 0xE1000)]
    assigned = [code for code in codes if unicodedata.category(chr(code)) != "Cn"]
    expected = {code: visible_lines(chr(code)) for code in assigned if visible_lines(chr(code)) != chr(code)}
    assert {code: escaped[str(code)] for code in assigned if str(code) in escaped} == expected
    assert len(expected) > 1000


def test_scripts_of_the_page_write_texts_by_one_function():
    direct = re.compile(r"(\.textContent = (?!\"\";).*|\.(?:inner|outer)HTML = .*|insertAdjacentHTML.*)")
    writes = {
        (file.name, match[1])
        for file in STATIC.glob("*.js")
        for match in direct.finditer(file.read_text())
        if "= await response.text();" not in match[1]  # a part of a page of the server
    }
    assert writes == {
        ("dom.js", ".textContent = visible(text);"),
        ("jobs.js", ".innerHTML = html;"),
    }
