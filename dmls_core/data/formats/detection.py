"""Detect how a file is written, from its beginning: the keys of ``[data]`` that read it."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dmls_core.data.formats.compression import unpack_head
from dmls_core.data.formats.csv_dialect import csv_reader
from dmls_core.data.formats.encodings import codec_of, detect_encoding
from dmls_core.data.formats.names import COMPRESSED, format_of, formats, load_format
from dmls_core.errors import ValidationIssue

if TYPE_CHECKING:
    from dmls_core.spec.values import Encoding

ROWS = 500
"""Rows that are looked at."""

_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_SHARE = 0.5
"""Share of the rows that have the width of the table."""

_GROUPED = 3
"""Numbers with a mark of thousands, among smaller ones without, that leave no doubt."""

_NUMBER = re.compile(r"[+-]?[\d., '\u2019\u00a0\u202f]*\d[\d., '\u2019\u00a0\u202f]*(?:[eE][+-]?\d+)?")
_YEARS = range(1800, 2200)


def detect(name: str, head: bytes) -> dict[str, Any]:
    """Return the keys of ``[data]`` that a text needs, by its first bytes; empty for DMLS's own formats."""
    head, named = unpack_head(head), format_of(name)
    for one in formats():
        if one.is_text and one.name != "csv":  # any text may be CSV
            keys = one.detect(head)
            if keys is not None or one.name == named:
                return {"format": one.name, **(keys or {})}
    # Blank lines above a header need the key only if the file is otherwise read as it is.
    return detect_text(head, blank=named == "csv") or {}


def detect_text(head: bytes, *, blank: bool) -> dict[str, Any] | None:
    """Return the keys of ``[data]`` that a text with a delimiter needs; None if it is binary.

    An ambiguous number (``1,234``) has a decimal comma only if the columns are not separated by commas.
    ``blank`` says that blank lines above a header need ``skip_rows``.
    """
    keys: dict[str, Any] = {}
    encoding, text = _decode(head)
    if encoding != "utf-8":
        keys["encoding"] = encoding
    if "\0" in text:
        return None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    delimiter, rows = _split(text)
    if delimiter != ",":
        keys["delimiter"] = delimiter
    widths = Counter(len(cells) for _, cells in rows if cells)
    if not widths:
        return keys
    ((width, _),) = widths.most_common(1)
    start = next((at for at, (_, cells) in enumerate(rows) if len(cells) == width and _has_names(cells)), 0)
    if start and _lacks_a_name(rows[start - 1][1], width):
        start -= 1
    above = [cells for _, cells in rows[:start]]
    if (any(above) or (blank and above)) and all(
        len(cells) < width or 2 * sum(map(bool, cells)) < width for cells in above
    ):
        keys["skip_rows"] = rows[start][0] - 1
    else:
        start = 0
    table = [cells for _, cells in rows[start:] if len(cells) == width]
    if not table:
        return keys
    headless = len(rows[start][1]) == width and len(table) > 2 and _is_headless(table)
    names = [f"column_{at}" if headless else name.strip() for at, name in enumerate(table[0], start=1)]
    columns = zip(names, zip(*table[1:], strict=True), strict=False)
    keys |= detect_notation({name: [cell.strip() for cell in cells] for name, cells in columns}, delimiter)
    if headless:
        keys["header"] = False
    return keys


def describe(name: str, keys: Mapping[str, Any]) -> str:
    """Return a sentence on what was detected."""
    parts = []
    if name.lower().endswith(COMPRESSED):
        parts.append("the file is compressed")
    if "format" in keys:
        parts.append(f"the file has {load_format(keys['format']).title}")
    if "encoding" in keys:
        parts.append(f"the text is {keys['encoding']}, not UTF-8")
    if "delimiter" in keys:
        parts.append(f"the columns are separated by {_DELIMITERS[keys['delimiter']]}, not commas")
    if "decimal" in keys:
        parts.append("numbers have a decimal comma")
    if "thousands" in keys:
        parts.append(f"thousands are separated by {keys['thousands']!r}")
    if "numbers" in keys:
        parts.append(describe_numbers(keys["numbers"]).removesuffix(".").replace("Column", "column", 1))
    if "skip_rows" in keys:
        parts.append(f"the header is in line {keys['skip_rows'] + 1}")
    if keys.get("header") is False:
        parts.append("the file has no header: its first line contains numbers")
    return "; ".join(parts)


def _remedy(keys: Mapping[str, Any]) -> str:
    """Return what to add to a spec that reads such a file."""
    from dmls_core.spec.issues import quoted
    from dmls_core.spec.toml_io import toml_text

    def one_line(table: Mapping[str, Any]) -> str:
        return ", ".join(toml_text(table).strip("\n").split("\n"))

    plain = {key: value for key, value in keys.items() if key != "numbers"}
    lines = [one_line(plain)] if plain else []
    for name, notation in keys.get("numbers", {}).items():
        lines.append(f"numbers.{quoted(name)} = {{ {one_line(notation)} }}")
    return "add to [data] in the spec: " + ", ".join(lines)


def describe_numbers(numbers: Mapping[str, Mapping[str, str]]) -> str:
    """Return a sentence on the columns whose numbers are written otherwise, or have a unit."""
    parts = []
    for name, notation in numbers.items():
        marks = {",": "a decimal comma", ".": "a decimal point"}
        named = [marks[notation["decimal"]]] if notation.get("decimal") else []
        if notation.get("thousands"):
            named.append(f"thousands separated by {notation['thousands']!r}")
        if unit := notation.get("unit"):
            read = "%, read as written: 52.88% is 52.88, not 0.5288" if unit == "%" else unit
            named.append(f"the unit {read}")
        parts.append(f"{name!r} has numbers with {' and '.join(named)}")
    return f"Column {'; column '.join(parts)}."


NOTATION = frozenset({"decimal", "thousands", "numbers"})
"""Keys on how numbers are written."""


def explain(
    name: str,
    issues: Sequence[ValidationIssue],
    head: bytes,
    options: Mapping[str, Any],
    only: frozenset[str] | None = None,
) -> list[ValidationIssue]:
    """Return the issues of a file, or their cause if its ``[data]``, the ``options``, does not fit.

    With ``only``, the cause is one of these keys, and the issues are about numbers.
    """
    if not issues:
        return []
    detected = detect(name, head)
    keys = {
        key: value
        for key, value in detected.items()
        if options.get(key) != value
        and (only is None or key in only)
        and (key, value) != ("format", format_of(name))
    }
    if "numbers" in keys:
        keys["numbers"] = _missing_notations(detected, issues, options)
        if not keys["numbers"]:
            del keys["numbers"]
    numbers = "numbers" in keys or any(
        _NUMBER.fullmatch(issue.found) or "distinct" in issue.message for issue in issues
    )
    if not keys or (only is not None and not numbers):
        return list(issues)
    if only is None and keys.keys() <= NOTATION:
        return list(issues)  # not the cause
    first = issues[0]
    return [replace(first, message=describe(name, keys), hint=_remedy(keys), file=name, expected="")]


def _missing_notations(
    detected: Mapping[str, Any], issues: Sequence[ValidationIssue], options: Mapping[str, Any]
) -> dict[str, dict[str, str]]:
    """Return the notations of columns with issues that the ``options`` lack."""
    # The detected notations complete the detected marks of the file, which those of the spec may not be.
    marks = {"decimal": ".", "thousands": ""}
    other = {
        key: detected.get(key, usual)
        for key, usual in marks.items()
        if options.get(key, usual) not in (usual, detected.get(key, usual))
    }
    missing = {}
    for column in dict.fromkeys(issue.key for issue in issues):
        notation = {**other, **detected["numbers"].get(column, {})}
        present = (options.get("numbers") or {}).get(column) or {}
        if column in detected["numbers"] and notation.items() - present.items():
            missing[column] = notation
    return missing


def _decode(head: bytes) -> tuple[Encoding, str]:
    encoding = detect_encoding(head)
    # A character at the end may be incomplete.
    return encoding, codecs.getincrementaldecoder(codec_of(encoding, head))("replace").decode(head)


def _split(text: str) -> tuple[str, list[tuple[int, list[str]]]]:
    """Return the delimiter that gives most rows the same number of cells, and the rows with their lines."""
    best, parsed = 0.0, (",", list[tuple[int, list[str]]]())
    shares = {}
    for delimiter in _DELIMITERS:
        rows: list[tuple[int, list[str]]] = []
        reader = csv_reader(io.StringIO(text, newline=""), delimiter)
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
        shares[delimiter] = share if score else 0.0
        splits_numbers = parsed[0] == "," and shares[delimiter] >= shares[","] > 0 and _has_commas(rows)
        if score > best + 1e-9 or delimiter == "," or splits_numbers:
            best, parsed = score, (delimiter, rows)
    return parsed


def _has_commas(rows: Sequence[tuple[int, list[str]]]) -> bool:
    """Return whether cells are numbers with a comma, at which a comma as delimiter would split them."""
    cells = (cell.strip() for _, cells in rows for cell in cells if "," in cell)
    return any(_NUMBER.fullmatch(cell) or _split_unit(cell) for cell in cells)


@dataclass(frozen=True, slots=True)
class _NumberColumn:
    """The numbers of a column, without their unit.

    ``comma`` and ``point`` say that this can only be the decimal mark of some numbers; ``whole`` that all
    values are numbers.
    """

    numbers: Sequence[str]
    unit: str
    comma: bool
    point: bool
    whole: bool

    @classmethod
    def of(cls, cells: Sequence[str]) -> _NumberColumn:
        # Intake, which the DAG files import, must not import NumPy.
        from dmls_core.data.encoder import is_missing
        from dmls_core.data.formats.missing_marks import is_usual

        present = [cell for cell in cells if not (is_missing(cell) or is_usual(cell))]
        unit = _common_unit(present)
        bare = [(_split_unit(cell) or ("", cell))[1] if unit else cell for cell in present]
        numbers = [cell for cell in bare if _NUMBER.fullmatch(cell)]
        comma, point = (
            _groups_thousands(bare, other)
            or any(re.fullmatch(pattern, number) for number in numbers for pattern in _decimals(mark, other))
            for mark, other in ((",", "."), (".", ","))
        )
        return cls(numbers, unit, comma, point, len(numbers) == len(present))


def _decimals(mark: str, other: str) -> tuple[str, ...]:
    """Return regular expressions of numbers of which ``mark`` can only be the decimal mark."""
    mark, other = re.escape(mark), re.escape(other)
    return (
        rf"[+-]?\d+{mark}(?:\d{{1,2}}|\d{{4,}})",
        rf"[+-]?\d{{1,3}}(?:{other}\d{{3}})+{mark}\d+",
        rf"[+-]?0{mark}\d+",
    )


def detect_notation(columns: Mapping[str, Sequence[str]], delimiter: str = "") -> dict[str, Any]:
    """Return how numbers are written, unless with a point alone, and which columns differ or have units.

    The result is part of ``[data]``; ``delimiter`` is that of the text, if the cells are from one.
    """
    read = {name: _NumberColumn.of(cells) for name, cells in columns.items()}
    commas = {name for name, one in read.items() if one.comma and not one.point and one.whole}
    points = {name for name, one in read.items() if one.point}
    comma = any(one.comma for one in read.values())
    others: set[str] = set()
    if comma and points:
        others = commas if len(commas) <= len(points) else points
        comma = others is points
    numbers = [number for name, one in read.items() if name not in others for number in one.numbers]
    unsure = any(re.fullmatch(r"[+-]?\d{1,3},\d{3}", number) for number in numbers)
    decimal = "," if comma or (unsure and delimiter != "," and not points) else "."
    thousands = _thousands(numbers, decimal, sure=comma)
    keys: dict[str, Any] = {"decimal": ","} if decimal == "," else {}
    if thousands:
        keys["thousands"] = thousands
    notations: dict[str, dict[str, str]] = {}
    for name, one in read.items():
        notation = {}
        if name in others:
            notation["decimal"] = other_mark(decimal)
            marks = _thousands(one.numbers, notation["decimal"], sure=True)
            if marks != thousands:
                notation["thousands"] = marks
        if one.unit:
            notation["unit"] = one.unit
        if notation:
            notations[name] = notation
    return keys | ({"numbers": notations} if notations else {})


def _thousands(numbers: Sequence[str], decimal: str, *, sure: bool) -> str:
    """Return what separates thousands in numbers; ``sure`` if their decimal mark is beyond doubt."""
    point = re.escape(decimal)
    for separator in (other_mark(decimal), " ", "'"):
        grouped = rf"[+-]?\d{{1,3}}(?:{spelled_mark(separator)}\d{{3}})+"
        fraction = rf"{point}\d+" if decimal == "," and not sure else rf"(?:{point}\d+)?"
        if any(re.fullmatch(grouped + fraction, number) for number in numbers):
            return separator
    return ""


def other_mark(decimal: str) -> str:
    """Return the decimal mark that this one is not."""
    return "." if decimal == "," else ","


_SYMBOL = "[%$€£¥₹₩₽₺₴₪]"
_BEFORE = re.compile(rf"([+-]?)({_SYMBOL}|[A-Z]{{3}}(?=\s))\s*(.+)")
_BEHIND = re.compile(rf"(.+?)\s*({_SYMBOL}|(?<=\s)[A-Za-z]{{1,4}}|(?<=\d)[A-Za-z]{{2,4}})")
"""A number with a unit. One letter beside it, as in ``12A``, is a code rather."""


def _split_unit(cell: str) -> tuple[str, str] | None:
    """Return the unit and the number of a text that has both."""
    if match := _BEFORE.fullmatch(cell):
        unit, number = match[2], match[1] + match[3]
    elif match := _BEHIND.fullmatch(cell):
        unit, number = match[2], match[1]
    else:
        return None
    return (unit, number) if _NUMBER.fullmatch(number) else None


def _common_unit(cells: Sequence[str]) -> str:
    """Return the unit that most values of a column of numbers have; empty if not all others are plain."""
    split = [_split_unit(cell) for cell in cells if not _NUMBER.fullmatch(cell)]
    units = {one[0] if one else "" for one in split}
    return units.pop() if len(units) == 1 and 2 * len(split) > len(cells) else ""


def number_pattern(decimal: str, thousands: str, unit: str = "") -> str:
    """Return a regular expression of the numbers in a notation, with or without their unit."""
    separator = spelled_mark(thousands)
    integer = rf"(?:\d{{1,3}}(?:{separator}\d{{3}})+|\d+)" if thousands else r"\d+"
    point = re.escape(decimal)
    digits = rf"(?:{integer}(?:{point}\d*)?|{point}\d+)(?:[eE][+-]?\d+)?"
    if not unit:
        return rf"^\s*[+-]?{digits}\s*$"
    mark = re.escape(unit)
    return rf"^\s*(?:{mark}\s*[+-]?|[+-]?(?:{mark}\s*)?){digits}(?:\s*{mark})?\s*$"


def spelled_mark(thousands: str) -> str:
    """Return a regular expression of the characters that a mark of thousands stands for."""
    return {" ": "[ \u00a0\u202f]", "'": "['\u2019]"}.get(thousands, re.escape(thousands))


def _groups_thousands(column: Sequence[str], separator: str) -> bool:
    """Return whether the numbers of a column can only have this separator between thousands, not decimals.

    It is so with two of them in a number; and if all numbers with one have three digits behind it, while
    those below 1,000 have none: as decimal mark, it would be in these, too.
    """
    marked = [cell for cell in column if separator in cell]
    grouped = re.compile(rf"[+-]?[1-9]\d{{0,2}}(?:{re.escape(separator)}\d{{3}})+")
    if not marked or not all(map(grouped.fullmatch, marked)):
        return False
    if any(cell.count(separator) > 1 for cell in marked):
        return True
    plain = [cell for cell in column if cell and separator not in cell]
    small = [cell for cell in plain if re.fullmatch(r"[+-]?\d{1,3}", cell)]
    return len(marked) >= _GROUPED and bool(small) and len(small) == len(plain)


def _has_names(cells: Sequence[str]) -> bool:
    """Return whether a row may be a header: which only lacks the name of an index, as pandas writes one."""
    first, *others = cells
    return all(others) and (bool(first) or not any(map(_NUMBER.fullmatch, others)))


def _lacks_a_name(above: Sequence[str], width: int) -> bool:
    """Return whether the line above the rows has a name for all columns but one, as R writes row names."""
    return width > 2 and len(above) == width - 1 and all(above) and not any(map(_NUMBER.fullmatch, above))


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
