"""Texts of users, made safe to show: in a terminal, on a page and in a log.

Names of objects, columns and classes may contain characters that a terminal obeys, that turn the direction of
the text around them, or that are invisible. With them, one user could clear or forge another one's screen.
"""

from __future__ import annotations

_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def visible(text: str) -> str:
    """Return a text on one line, with TOML's escapes for characters that are not printable."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def visible_lines(text: str) -> str:
    """Return a text of several lines with the escapes of ``visible``."""
    return text if text.isprintable() else "\n".join(map(visible, text.split("\n")))


def _escape(character: str) -> str:
    code = ord(character)
    return _SHORT.get(character) or (f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}")
