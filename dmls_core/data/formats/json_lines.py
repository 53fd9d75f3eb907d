"""JSON lines: each line is an object with the values of a row."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmls_core.data.formats.base import Format
from dmls_core.errors import DataError, ValidationIssue

if TYPE_CHECKING:
    import polars as pl

    from dmls_core.spec.data_table import Data

_KEY = re.compile(rb'"([^"\\]*(?:\\.[^"\\]*)*)"\s*:')
_BLOCK = 1 << 20

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
        """Return no keys; None if the text does not begin with an object."""
        return {} if _OBJECT.match(head) else None

    def convert(self, path: Path, data: Data, target: Path) -> None:
        """Write the objects as rows of a CSV."""
        from dmls_core.data.formats.encodings import write_utf8
        from dmls_core.data.formats.plain_csv import write_table

        plain = target.with_name("lines")
        write_utf8(path, "utf-8", plain)
        frame = _read(path, plain)
        columns = (_as_text(name, dtype) for name, dtype in frame.schema.items())
        write_table(frame.lazy().select(columns), frame.columns, data, target, above=0)


def _read(path: Path, plain: Path) -> pl.DataFrame:
    """Read the lines of ``plain``; raise ``DataError`` for those of ``path`` that are not flat objects."""
    import polars as pl

    _check_keys(path, plain)
    try:
        frame = pl.read_ndjson(plain, infer_schema_length=None)
    except pl.exceptions.PolarsError as error:
        empty = True
        with plain.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                empty = empty and not line.strip()
                if line.strip() and (key := _broken_key(line)) is not None:
                    message = "the line is not a JSON object"
                    hint = "write each row as one object in a line of its own"
                    issue = ValidationIssue(
                        message, hint, file=path.name, line=number, key=key, found=line[:80].strip()
                    )
                    raise DataError(issue) from None
        if empty:
            hint = "upload it again with its rows"
            raise DataError(ValidationIssue("the file is empty", hint, file=path.name)) from None
        raise error
    if nested := [name for name, dtype in frame.schema.items() if dtype.is_nested()]:
        message, hint = "contains lists or objects", "write one value per key"
        lines_of = {name: _nested_line(plain, name) for name in nested}
        raise DataError(
            [ValidationIssue(message, hint, file=path.name, line=lines_of[name], key=name) for name in nested]
        )
    return frame


def _check_keys(path: Path, plain: Path) -> None:
    """Raise ``DataError`` if the table of all rows and keys would be large and nearly empty.

    A small file can have a key of its own in each row: its table grows with the square of its size.
    """
    keys: set[bytes] = set()
    rows = values = 0
    with plain.open("rb") as file:
        while lines := file.readlines(_BLOCK):
            names = _KEY.findall(b"".join(lines))  # texts may look like keys
            keys.update(names)
            rows, values = rows + len(lines), values + len(names)
            if _is_sparse(rows, len(keys), values):
                _check_exactly(path, plain)
                return


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


def _as_text(name: str, dtype: pl.DataType) -> pl.Expr:
    """Return a column as text in one line, so that a record is a line."""
    import polars as pl

    column = pl.col(name).cast(pl.String)
    return column.str.replace_all(r"[\r\n]+", " ") if dtype == pl.String else column
