"""Detect how a file is written, from its beginning: the keys of ``[data]`` that read it."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from dmls_core.data.compression import unpack_head
from dmls_core.data.formats import COMPRESSED, format_of
from dmls_core.errors import ValidationIssue

ROWS = 500
"""Rows that are looked at."""

_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_SHARE = 0.5
"""Share of the rows that have the width of the table."""

_NUMBER = re.compile(r"[+-]?[\d., '\u00a0\u202f]*\d[\d., '\u00a0\u202f]*(?:[eE][+-]?\d+)?")
_YEARS = range(1800, 2200)


def detect(name: str, head: bytes) -> dict[str, Any]:
    """Return the keys of ``[data]`` that a file needs, by its first bytes; empty for DMLS's own formats.

    An ambiguous number (``1,234``) has a decimal comma only if the columns are not separated by commas.
    """
    head = unpack_head(head)
    if format_of(name) == "jsonl" or re.match(rb'\s*\{\s*"', head):
        return {"format": "jsonl"}
    found: dict[str, Any] = {}
    encoding, text = _decode(head)
    if encoding != "utf-8":
        found["encoding"] = encoding
    if "\0" in text:
        return {}  # binary
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    delimiter, rows = _split(text)
    if delimiter != ",":
        found["delimiter"] = delimiter
    widths = Counter(len(cells) for _, cells in rows if cells)
    if not widths:
        return found
    ((width, _),) = widths.most_common(1)
    start = next((at for at, (_, cells) in enumerate(rows) if len(cells) == width and all(cells)), 0)
    above = [cells for _, cells in rows[:start]]
    # Blank lines above a header need the key only if the file is otherwise read as it is.
    blank = format_of(name) == "csv" and bool(above)
    if (any(above) or blank) and all(
        len(cells) < width or 2 * sum(map(bool, cells)) < width for cells in above
    ):
        found["skip_rows"] = rows[start][0] - 1
    else:
        start = 0
    table = [cells for _, cells in rows[start:] if len(cells) == width]
    if not table:
        return found
    found |= _notation([cell.strip() for cells in table[1:] for cell in cells], delimiter)
    if len(table) > 2 and _is_headless(table):
        found["header"] = False
    return found


def describe(name: str, keys: Mapping[str, Any]) -> str:
    """Return a sentence on what was detected."""
    parts = []
    if name.lower().endswith(COMPRESSED):
        parts.append("the file is compressed")
    if "format" in keys:
        parts.append("the file has JSON lines")
    if "encoding" in keys:
        parts.append(f"the text is {keys['encoding']}, not UTF-8")
    if "delimiter" in keys:
        parts.append(f"the columns are separated by {_DELIMITERS[keys['delimiter']]}, not commas")
    if "decimal" in keys:
        parts.append("numbers have a decimal comma")
    if "thousands" in keys:
        parts.append(f"thousands are separated by {keys['thousands']!r}")
    if "skip_rows" in keys:
        parts.append(f"the header is in line {keys['skip_rows'] + 1}")
    if keys.get("header") is False:
        parts.append("the file has no header: its first line contains numbers")
    return "; ".join(parts)


def remedy(keys: Mapping[str, Any]) -> str:
    """Return what to add to a spec that reads such a file."""
    from dmls_core.spec.toml_io import toml_text

    return "add to [data] in the spec: " + ", ".join(toml_text(dict(keys)).split("\n")).strip(", ")


NOTATION = frozenset({"decimal", "thousands"})
"""Keys on how numbers are written."""


def explain(
    name: str,
    issues: Sequence[ValidationIssue],
    head: bytes,
    given: Mapping[str, Any],
    only: frozenset[str] | None = None,
) -> list[ValidationIssue]:
    """Return the issues of a file, or their cause if it is written otherwise than ``given``, its ``[data]``.

    With ``only``, the cause is one of these keys, and the issues are about numbers.
    """
    if not issues:
        return []
    found = detect(name, head)
    keys = {
        key: value
        for key, value in found.items()
        if given.get(key) != value
        and (only is None or key in only)
        and (key, value) != ("format", format_of(name))
    }
    numbers = any(_NUMBER.fullmatch(issue.found) or "distinct" in issue.message for issue in issues)
    if not keys or (only is not None and not numbers):
        return list(issues)
    if only is None and keys.keys() <= NOTATION:
        return list(issues)  # not the cause
    first = issues[0]
    return [replace(first, message=describe(name, keys), hint=remedy(keys), file=name, expected="")]


def _decode(head: bytes) -> tuple[str, str]:
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16", codecs.getincrementaldecoder("utf-16")("replace").decode(head)
    try:
        return "utf-8", codecs.getincrementaldecoder("utf-8-sig")().decode(head)
    except UnicodeDecodeError:
        return "windows-1252", head.decode("cp1252", "replace")


def _split(text: str) -> tuple[str, list[tuple[int, list[str]]]]:
    """Return the delimiter that gives most rows the same number of cells, and the rows with their lines."""
    best, parsed = 0.0, (",", list[tuple[int, list[str]]]())
    for delimiter in _DELIMITERS:
        rows: list[tuple[int, list[str]]] = []
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        line = 1
        with suppress(csv.Error):
            for cells in reader:
                rows.append((line, cells))
                line = reader.line_num + 1
                if len(rows) == ROWS:
                    break
        widths = Counter(len(cells) for _, cells in rows if cells)
        width, count = widths.most_common(1)[0] if widths else (0, 0)
        share = count / max(1, sum(widths.values()))
        score = share * (1 - 1 / width) if width > 1 and share >= _SHARE else 0.0
        if score > best + 1e-9 or delimiter == ",":
            best, parsed = score, (delimiter, rows)
    return parsed


def _notation(cells: Sequence[str], delimiter: str) -> dict[str, str]:
    """Return the decimal mark and the mark of thousands, unless they are a point and none."""
    numbers = [cell for cell in cells if _NUMBER.fullmatch(cell)]

    def some(pattern: str) -> bool:
        return any(re.fullmatch(pattern, number) for number in numbers)

    comma = (
        some(r"[+-]?\d+,(?:\d{1,2}|\d{4,})") or some(r"[+-]?\d{1,3}(?:\.\d{3})+,\d+") or some(r"[+-]?0,\d+")
    )
    point = (
        some(r"[+-]?\d+\.(?:\d{1,2}|\d{4,})") or some(r"[+-]?\d{1,3}(?:,\d{3})+\.\d+") or some(r"[+-]?0\.\d+")
    )
    unsure = some(r"[+-]?\d{1,3},\d{3}")
    decimal = "," if (comma or (unsure and delimiter != ",")) and not point else "."
    found = {"decimal": ","} if decimal == "," else {}
    other = "." if decimal == "," else ","
    fraction = rf"(?:{re.escape(decimal)}\d+)?"
    for mark in (other, " ", "'"):
        spelled = "[ \u00a0\u202f]" if mark == " " else re.escape(mark)
        several = some(rf"[+-]?\d{{1,3}}(?:{spelled}\d{{3}})+{re.escape(decimal)}\d+")
        grouped = some(rf"[+-]?\d{{1,3}}(?:{spelled}\d{{3}})+{fraction}")
        if grouped and (several or decimal == "." or comma):
            found["thousands"] = mark
            break
    return found


def _is_headless(table: Sequence[Sequence[str]]) -> bool:
    """Return whether the first row has numbers wherever the others have; years and 0, 1, 2 are names."""

    def is_number(cell: str) -> bool:
        return bool(_NUMBER.fullmatch(cell.strip()))

    body = table[1 : 1 + ROWS]
    columns = [
        at for at in range(len(table[0])) if all(is_number(row[at]) for row in body if row[at].strip())
    ]
    first = [table[0][at].strip() for at in columns]
    digits = [int(cell) for cell in first if cell.isdecimal()]
    counted = len(digits) == len(first) and digits == list(range(len(digits)))
    named = counted or (len(digits) == len(first) and all(digit in _YEARS for digit in digits))
    return bool(first) and all(map(is_number, first)) and not named
