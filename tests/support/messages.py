"""Messages and outputs that the documentation shows, compared with the texts in the code."""

from __future__ import annotations

import ast
import re
from functools import cache

from tests.support.pages import ROOT

VALUE = re.compile(
    r"""\.\.\.|'[^']*'|[:;()%\[\]]|,[ ]|[ ]{2,}|<\w+>|\b[NM]\b|[0-9a-f]{12}|\d[\d.,]*"""
    r"""|[\w.-]+\.(?:toml|json|tl|csv)|\b(?:h|min|MiB|GiB|EUR|semicolons|year-first|fields|found|finished)\b|dmls\."""
)
"""What stands for a value, or separates parts, in a message."""


@cache
def texts_of_the_code() -> str:
    """Return all strings of the package, those with values in them in pieces."""
    found = [
        node.value
        for path in (ROOT / "dmls_core").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    scripts = [*(ROOT / "dmls_core/web").rglob("*.html"), *(ROOT / "dmls_core/web/static").glob("[a-z]*.js")]
    found += [path.read_text() for path in scripts]
    return " ".join("\n".join(found).replace("`", "").split())


def parts_of(message: str) -> set[str]:
    """Return the parts of a message between its values, of three words or more."""
    return {part for text in VALUE.split(message) if len((part := text.strip(" ,.")).split()) >= 3}


def missing_parts(message: str) -> set[str]:
    """Return the parts of a message that the code does not have."""
    return {part for part in parts_of(message) if part not in texts_of_the_code()}
