"""Bytes to a TOML document: measured before it is parsed, and checked for what no spec may hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tomli

from dmls_core.errors import SpecError, ValidationIssue
from dmls_core.settings import SpecLimits
from dmls_core.spec.findings import Findings
from dmls_core.spec.positions import Lines, Path, Positions
from dmls_core.spec.tokens import Token, tokens

_LONGEST_BARE = 256
"""Longest number or bare key, far below the digits at which Python refuses an integer."""

_HINTS = {
    "Cannot overwrite a value": "the key is set twice: keep one of the two",
    "Cannot declare": "the table is there twice: put its keys under one heading",
    "Unterminated string": "close the string with a quote",
    'Expected "': "close the string with a quote",
    "Invalid value": "write text in quotes, and true or false in small letters",
    "Expected '='": "write `key = value`; a key with blanks needs quotes",
}


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed TOML document and where its keys stand."""

    data: dict[str, Any]
    positions: Positions


def read_document(source: bytes, file: str, limits: SpecLimits) -> Document:
    """Parse ``source``.

    Raises:
        SpecError: it is too large, not UTF-8, not TOML, or holds a value that no spec may hold.
    """
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
        # The measures above leave nothing that the parser is known to choke on; this is for its bugs.
        raise SpecError(ValidationIssue(f"is not TOML: {error}", file=file, line=1, column=1)) from None
    positions = Positions(text)
    findings = Findings(file, positions, limits)
    inspect_values(data, findings, limits)
    findings.raise_any()
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
        # Some editors begin a UTF-8 file with a byte order mark; it means nothing.
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
        line, column = Lines(text).place(text.index("\x00"))
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
    """Refuse what would make the parser slow or recurse too deep, before it sees it."""
    depth = dots = items = 0
    for token in tokens(text):
        if token.kind == "mark":
            mark = text[token.start]
            depth += (mark in "[{") - (mark in "]}")
            items += mark in ",=["
            dots = 0
        elif token.kind == "bare":
            dots += text.count(".", token.start, token.end)
            if token.end - token.start > _LONGEST_BARE:
                raise _refusal(text, token, file, "is a number or key that is too long", f"{_LONGEST_BARE}")
        if depth > limits.depth or dots > limits.depth:
            raise _refusal(text, token, file, "is nested too deep", f"{limits.depth} levels")
        if items > limits.items:
            raise _refusal(text, token, file, "is one key or list element too many", f"{limits.items:,}")


def _refusal(text: str, token: Token, file: str, message: str, most: str) -> SpecError:
    line, column = Lines(text).place(token.start)
    return SpecError(
        ValidationIssue(message, file=file, line=line, column=column, expected=f"at most {most}")
    )


def inspect_values(data: dict[str, Any], findings: Findings, limits: SpecLimits) -> None:
    """Report numbers that are not finite or too large, strings that are too long or not text."""
    open_: list[tuple[Path, object]] = [((), data)]
    while open_:
        path, value = open_.pop()
        if isinstance(value, dict | list) and len(path) > limits.depth:
            findings.add(path, "is nested too deep", expected=f"at most {limits.depth} levels")
        elif isinstance(value, dict):
            for key, child in value.items():
                _inspect_text((*path, key), key, findings, limits)
                open_.append(((*path, key), child))
        elif isinstance(value, list):
            open_.extend(((*path, index), child) for index, child in enumerate(value))
        elif isinstance(value, str):
            _inspect_text(path, value, findings, limits)
        elif isinstance(value, int):
            if not -(2**63) <= value < 2**63:
                findings.add(path, "is too large a number", found=value, expected="at most 64 bits")
        elif isinstance(value, float) and value - value != 0.0:
            findings.add(path, "must be a finite number", found=value, expected="a number")


def _inspect_text(path: Path, text: str, findings: Findings, limits: SpecLimits) -> None:
    if len(text) > limits.text:
        findings.add(path, "is too long", found=text, expected=f"at most {limits.text:,} characters")
    elif any(character < " " and character not in "\t\n\r" for character in text):
        findings.add(path, "holds a control character", found=text, expected="plain text")
