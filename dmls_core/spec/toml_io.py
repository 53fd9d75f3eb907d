"""Read a TOML document within limits, and write one."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import tomli

from dmls_core.errors import SpecError, ValidationIssue
from dmls_core.settings import SpecLimits
from dmls_core.spec.issues import IssueCollector, quoted
from dmls_core.spec.positions import Lines, Path, Positions, Token, tokens
from dmls_core.spec.tables import KEYS, RESERVED

_LONGEST_BARE = 256
"""Longest number or bare key; Python itself rejects integers with many more digits."""

_HINTS = {
    "Cannot overwrite a value": "the key is set twice: keep one of the two",
    "Cannot declare": "the table appears twice: put its keys under one heading",
    "Unterminated string": "close the string with a quote",
    'Expected "': "close the string with a quote",
    "Invalid value": "write text in quotes, and true or false in lowercase",
    "Expected '='": "write `key = value`; a key with blanks needs quotes",
}


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed TOML document with the positions of its keys."""

    data: dict[str, Any]
    positions: Positions


def read_document(source: bytes, file: str, limits: SpecLimits) -> Document:
    """Parse ``source``; raise ``SpecError`` if too large, not UTF-8, not TOML, or impossible in a spec."""
    text = _decode(source, file, limits)
    _measure(text, file, limits)
    try:
        data = tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        hint = next((hint for start, hint in _HINTS.items() if error.msg.startswith(start)), "")
        raise SpecError(
            ValidationIssue(
                f"is not TOML: {error.msg}", hint, file=file, line=error.lineno, column=error.colno
            )
        ) from None
    except (ValueError, RecursionError) as error:
        # The checks above reject everything that breaks the parser as far as known.
        raise SpecError(ValidationIssue(f"is not TOML: {error}", file=file, line=1, column=1)) from None
    positions = Positions(text)
    issues = IssueCollector(file, positions, limits)
    inspect_values(data, issues, limits)
    issues.raise_any()
    return Document(data, positions)


def _decode(source: bytes, file: str, limits: SpecLimits) -> str:
    if len(source) > limits.bytes:
        raise SpecError(
            ValidationIssue(
                "is too large",
                "a spec holds settings, not data",
                file=file,
                line=1,
                column=1,
                found=f"{len(source):,} bytes",
                expected=f"at most {limits.bytes:,} bytes",
            )
        )
    if source.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise SpecError(
            ValidationIssue(
                "is UTF-16", "save the file as UTF-8", file=file, line=1, column=1, expected="UTF-8"
            )
        )
    try:
        # Some editors start a UTF-8 file with a byte order mark.
        text = source.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = source[: error.start]
        start_of_line = before.rfind(b"\n") + 1
        raise SpecError(
            ValidationIssue(
                "is not UTF-8",
                "save the file as UTF-8",
                file=file,
                line=before.count(b"\n") + 1,
                column=len(before[start_of_line:].decode("utf-8-sig", "replace")) + 1,
                found=f"byte 0x{source[error.start]:02x} at offset {error.start}",
                expected="UTF-8",
            )
        ) from None
    if "\x00" in text:
        line, column = Lines(text).position(text.index("\x00"))
        raise SpecError(
            ValidationIssue(
                "holds a NUL character",
                "save the file as plain UTF-8 text",
                file=file,
                line=line,
                column=column,
            )
        )
    return text


def _measure(text: str, file: str, limits: SpecLimits) -> None:
    """Reject text that would make the parser slow or recurse too deep."""
    depth = dots = items = 0
    for token in tokens(text):
        if token.type == "punctuation":
            punctuation = text[token.start]
            depth += (punctuation in "[{") - (punctuation in "]}")
            items += punctuation in ",=["
            dots = 0
        elif token.type == "bare":
            dots += text.count(".", token.start, token.end)
            if token.end - token.start > _LONGEST_BARE:
                raise _refusal(text, token, file, "is a number or key that is too long", f"{_LONGEST_BARE}")
        if depth > limits.depth or dots > limits.depth:
            raise _refusal(text, token, file, "is nested too deep", f"{limits.depth} levels")
        if items > limits.items:
            raise _refusal(
                text, token, file, "is one key or list element over the limit", f"{limits.items:,}"
            )


def _refusal(text: str, token: Token, file: str, message: str, most: str) -> SpecError:
    line, column = Lines(text).position(token.start)
    return SpecError(
        ValidationIssue(message, file=file, line=line, column=column, expected=f"at most {most}")
    )


def inspect_values(data: dict[str, Any], issues: IssueCollector, limits: SpecLimits) -> None:
    """Report numbers that are not finite or too large, strings that are too long or not text."""
    open_: list[tuple[Path, object]] = [((), data)]
    while open_:
        path, value = open_.pop()
        if isinstance(value, dict | list) and len(path) > limits.depth:
            issues.add(path, "is nested too deep", expected=f"at most {limits.depth} levels")
        elif isinstance(value, dict):
            for key, child in value.items():
                _inspect_text((*path, key), key, issues, limits)
                open_.append(((*path, key), child))
        elif isinstance(value, list):
            open_.extend(((*path, index), child) for index, child in enumerate(value))
        elif isinstance(value, str):
            _inspect_text(path, value, issues, limits)
        elif isinstance(value, int):
            if not -(2**63) <= value < 2**63:
                issues.add(path, "is too large a number", found=value, expected="at most 64 bits")
        elif isinstance(value, float) and value - value != 0.0:
            issues.add(path, "must be a finite number", found=value, expected="a number")


def _inspect_text(path: Path, text: str, issues: IssueCollector, limits: SpecLimits) -> None:
    if len(text) > limits.text:
        issues.add(path, "is too long", found=text, expected=f"at most {limits.text:,} characters")
    elif any(character < " " and character not in "\t\n\r" for character in text):
        issues.add(path, "holds a control character", found=text, expected="plain text")


_BARE = re.compile(r"[A-Za-z0-9_-]+")
_WIDTH = 100


def toml_text(document: Mapping[str, object]) -> str:
    """Return a document of ``tomllib`` as TOML: top-level keys, reserved tables, then hyperparameters.

    Raises:
        SpecError: the document contains a value that a spec cannot contain.
    """
    top = [name for name in KEYS if name in document]
    top += [name for name, value in document.items() if name not in KEYS and not isinstance(value, Mapping)]
    lines = [f"{_key(name)} = {_value(document[name])}" for name in top]
    reserved = [name for name in RESERVED if isinstance(document.get(name), Mapping)]
    tables = [name for name, value in document.items() if isinstance(value, Mapping) and name not in reserved]
    for name in (*reserved, *tables):
        lines += _table((name,), document[name])
    return "\n".join(lines).strip("\n") + "\n"


def _table(path: tuple[str, ...], table: object) -> Iterator[str]:
    if not isinstance(table, Mapping):
        raise SpecError(f"{'.'.join(path)} must be a table")
    plain = {name: value for name, value in table.items() if not isinstance(value, Mapping)}
    inner = {name: value for name, value in table.items() if isinstance(value, Mapping)}
    if plain or not inner:
        yield ""
        yield f"[{'.'.join(map(_key, path))}]"
        yield from (f"{_key(name)} = {_value(value)}" for name, value in plain.items())
    for name, value in inner.items():
        yield from _table((*path, name), value)


def _key(name: object) -> str:
    return name if isinstance(name, str) and _BARE.fullmatch(name) else _text(str(name))


def _value(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float() if math.isfinite(value):
            return repr(value)
        case str():
            return _text(value)
        case list() | tuple():
            parts = [_value(part) for part in value]
            line = f"[{', '.join(parts)}]"
            return line if len(line) <= _WIDTH else "[\n" + "".join(f"  {part},\n" for part in parts) + "]"
    raise SpecError(f"{str(value)[:40]!r} cannot be written into a spec")


def _text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise SpecError(f"{text[:40]!r} cannot be written into a spec: it is not valid Unicode") from error
    return quoted(text)
