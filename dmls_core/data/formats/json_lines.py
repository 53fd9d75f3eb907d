"""JSON lines: each line is an object with the values of a row."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmls_core.data.formats.base import Format
from dmls_core.data.request_json import load_json
from dmls_core.errors import DataError, ValidationIssue

if TYPE_CHECKING:
    import polars as pl

    from dmls_core.spec.data_table import Data

_KEY = re.compile(rb'"([^"\\]*(?:\\.[^"\\]*)*)"\s*:')
_BLOCK = 1 << 20

_LARGEST = 2**64
"""Integers below are read."""

_CELLS, _SPARSE = 5_000_000, 20
"""A table with more cells than this has a value in at least one of 20."""

_OBJECT = re.compile(rb'\s*\{\s*"')


class JsonLinesFormat(Format):
    """JSON lines, which become CSV: each line stays one, below a header."""

    name, title = "jsonl", "JSON lines"
    suffixes = (".jsonl", ".ndjson")
    is_text = adds_header = True
    keys = frozenset({"decimal", "thousands", "numbers"})

    def detect(self, head: bytes) -> Mapping[str, Any] | None:
        """Return how numbers that are texts are written; None if the text does not begin with an object."""
        from dmls_core.data.formats.detection import ROWS, detect_notation

        if not _OBJECT.match(head):
            return None
        texts: dict[str, list[str]] = {}
        with suppress(ValueError, RecursionError):  # the last line may be cut
            for line in head.splitlines()[:ROWS]:
                row = json.loads(line) if line.strip() else {}
                for name, value in row.items() if isinstance(row, dict) else ():
                    texts.setdefault(name, []).append(value.strip() if isinstance(value, str) else "")
        return detect_notation(texts)

    def convert(self, path: Path, data: Data, target: Path) -> None:
        """Write the objects as rows of a CSV."""
        from dmls_core.data.formats.encodings import write_utf8
        from dmls_core.data.formats.plain_csv import write_table

        plain = target.with_name("lines")
        write_utf8(path, "utf-8", plain)
        frame = _read(path, plain)
        columns = (_as_text(name, dtype, data.notation(name)[0]) for name, dtype in frame.schema.items())
        write_table(frame.lazy().select(columns), frame.columns, data, target, above=0)


def _read(path: Path, plain: Path) -> pl.DataFrame:
    """Read the lines of ``plain``; raise ``DataError`` for those of ``path`` that are not flat objects."""
    import polars as pl

    _check_keys(path, plain)
    try:
        frame = pl.read_ndjson(plain, infer_schema_length=None)
    except pl.exceptions.PolarsError as error:
        if issue := _first_issue(plain):
            raise DataError(replace(issue, file=path.name)) from None
        raise error
    if nested := [name for name, dtype in frame.schema.items() if dtype.is_nested()]:
        message, hint = "contains lists or objects", "write one value per key"
        lines_of = {name: _nested_line(plain, name) for name in nested}
        raise DataError(
            [ValidationIssue(message, hint, file=path.name, line=lines_of[name], key=name) for name in nested]
        )
    return frame


def _first_issue(plain: Path) -> ValidationIssue | None:
    """Return the first value or line that cannot be part of a table; None if all can."""
    booleans: dict[str, bool] = {}
    empty = True
    with plain.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            empty = False
            if (key := _broken_key(line)) is not None:
                message = "the line is not a JSON object"
                hint = "write each row as one object in a line of its own"
                return ValidationIssue(message, hint, line=number, key=key, found=line[:80].strip())
            try:
                row = load_json(line)
            except DataError as error:
                return replace(error.issues[0], line=number, column=None)
            for name, value in row.items():
                if message := _unfit(value, booleans.get(name)):
                    return ValidationIssue(message, line=number, key=name, found=str(value)[:80])
                if isinstance(value, bool | int | float):
                    booleans[name] = isinstance(value, bool)
    return ValidationIssue("the file is empty", "upload it again with its rows") if empty else None


def _unfit(value: object, boolean: bool | None) -> str:
    """Return why a value cannot be in a column, whose values so far are of ``boolean`` kind; mostly empty."""
    if isinstance(value, list | dict):
        return "contains lists or objects: write one value per key"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= _LARGEST:
        return "is too large a number"
    if isinstance(value, bool | int | float) and boolean == (not isinstance(value, bool)):
        return f"other values of this key are {'true or false' if boolean else 'numbers'}"
    return ""


def _check_keys(path: Path, plain: Path) -> None:
    """Raise ``DataError`` if the table of all rows and keys would be large and nearly empty.

    A small file can have a key of its own in each row: its table grows with the square of its size.
    """
    keys: set[bytes] = set()
    rows = values = 0
    with plain.open("rb") as file:
        while lines := file.readlines(_BLOCK):
            for number, line in enumerate(lines, start=rows + 1):
                names = _KEY.findall(line)  # texts may look like keys
                keys.update(names)
                values += len(names)
                if len(set(names)) < len(names):
                    _check_repeated(path, line, number)
            rows += len(lines)
            if _is_sparse(rows, len(keys), values):
                _check_exactly(path, plain)
                return


def _check_repeated(path: Path, line: bytes, number: int) -> None:
    """Raise ``DataError`` if an object repeats a key, of which programs read different values."""
    try:
        load_json(line)
    except DataError as error:
        if "occurs twice" in str(error):
            raise DataError(replace(error.issues[0], file=path.name, line=number)) from None


def _check_exactly(path: Path, plain: Path) -> None:
    keys: set[str] = set()
    rows = values = 0
    with plain.open("rb") as file, suppress(ValueError, RecursionError):  # reading the table names the line
        for line in file:
            row = json.loads(line) if line.strip() else {}
            if isinstance(row, dict):
                keys.update(row)
                rows, values = rows + 1, values + len(row)
            if _is_sparse(rows, len(keys), values):
                break
    if _is_sparse(rows, len(keys), values):
        message = "the lines have too many different keys"
        counts = f"{len(keys):,} keys in {rows:,} lines, each with {values / rows:.0f} of them"
        hint = "write the same keys in each line, null for a missing value"
        raise DataError(ValidationIssue(message, hint, file=path.name, found=counts))


def _is_sparse(rows: int, keys: int, values: int) -> bool:
    return rows * keys > max(_CELLS, _SPARSE * values)


def _nested_line(plain: Path, name: str) -> int | None:
    """Return the first line whose value of a key is a list or an object."""
    with plain.open(encoding="utf-8") as lines, suppress(ValueError, RecursionError):
        for number, line in enumerate(lines, start=1):
            if line.strip() and isinstance(json.loads(line).get(name), list | dict):
                return number
    return None


def _broken_key(line: str) -> str | None:
    """Return the last key before the error of a line, or an empty text; None if the line is an object."""
    try:
        return None if isinstance(json.loads(line), dict) else ""
    except json.JSONDecodeError as error:
        keys = re.findall(r'"([^"\\]{1,100})"\s*:', line[: error.pos])
        return keys[-1] if keys else ""
    except (ValueError, RecursionError):
        return ""


def _as_text(name: str, dtype: pl.DataType, decimal: str) -> pl.Expr:
    """Return a column as text in one line, so that a record is a line, with the ``decimal`` mark."""
    import polars as pl

    column = pl.col(name).cast(pl.String)
    if dtype.is_float():
        return column.str.replace(".", decimal, literal=True)
    return column.str.replace_all(r"[\r\n]+", " ") if dtype == pl.String else column
