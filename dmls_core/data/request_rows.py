"""Rows in the body of a request or response: JSON, CSV or Parquet.

This module is light: the sandbox imports it for each body in Parquet.
"""

from __future__ import annotations

import csv
import io
import json
import math
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dmls_core import sandbox
from dmls_core.data.formats.csv_dialect import csv_reader
from dmls_core.data.formats.damage import readable
from dmls_core.data.request_json import load_json
from dmls_core.errors import DataError, ValidationIssue

JSON, CSV, PARQUET = "application/json", "text/csv", "application/vnd.apache.parquet"
MEDIA_TYPES = (JSON, CSV, PARQUET)

MAX_ROWS = 100_000
"""Rows of one request."""

Columns = dict[str, list[Any]]


def read_rows(content: bytes, media_type: str) -> Columns:
    """Return rows as lists of values by column, ``None`` for a missing value.

    Raises:
        DataError: the rows are not of this format, or there are none or too many.
    """
    if media_type == PARQUET:
        with tempfile.TemporaryDirectory(prefix="dmls-predict-") as folder:
            path = Path(folder) / "the request's body"  # as messages name it
            path.write_bytes(content)
            columns: Columns = sandbox.run(read_parquet, str(path), file=path.name)
    elif media_type == CSV:
        columns = _read_csv(content)
    else:
        columns = _read_json(content)
    _check_number(len(next(iter(columns.values()), ())))
    return columns


def write_rows(columns: Mapping[str, Sequence[Any]], media_type: str) -> bytes:
    """Return columns of predictions as a JSON list of objects, a CSV with a header, or a Parquet file."""
    if media_type == PARQUET:
        import polars as pl

        target = io.BytesIO()
        pl.DataFrame(columns).write_parquet(target)
        return target.getvalue()
    rows: Iterable[tuple[Any, ...]] = zip(*columns.values(), strict=True)
    if media_type == CSV:
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
        return text.getvalue().encode()
    return json.dumps([dict(zip(columns, row, strict=True)) for row in rows]).encode()


def read_parquet(path: str) -> Columns:
    """Return the columns of a Parquet file; called in the sandbox."""
    import polars as pl

    with readable(Path(path), "it is not Parquet", "send a Parquet file, or another media type"):
        frame = pl.scan_parquet(path, glob=False)
        rows = int(frame.select(pl.len()).collect().item())
        table = frame.collect() if rows <= MAX_ROWS else pl.DataFrame()
    _check_number(rows)
    for name, dtype in table.schema.items():
        if dtype.is_nested() or dtype in {pl.Binary, pl.Object}:
            raise DataError(
                ValidationIssue(f"column {name!r} has values of type {dtype}", hint="give scalars")
            )
    texts = [name for name, dtype in table.schema.items() if not (dtype.is_numeric() or dtype == pl.Boolean)]
    numbers = [name for name, dtype in table.schema.items() if dtype.is_decimal()]
    return table.with_columns(pl.col(texts).cast(pl.String), pl.col(numbers).cast(pl.Float64)).to_dict(
        as_series=False
    )


def _read_json(content: bytes) -> Columns:
    rows = load_json(content)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        hint = '[{"column": 1.5, "other": "text"}, ...]'
        raise DataError(ValidationIssue("the body is not a list of objects, one per row", hint=hint))
    _check_number(len(rows))
    names = list(rows[0])
    for number, row in enumerate(rows, 1):
        if row.keys() != rows[0].keys():
            name = min(row.keys() ^ rows[0].keys())
            message = f"row {number} {'has' if name in row else 'lacks'} column {name[:60]!r}, unlike row 1"
            raise DataError(ValidationIssue(message, hint="give each row the same columns, null if missing"))
        for name, value in row.items():
            if isinstance(value, (list, dict)):
                raise DataError(
                    f"row {number}, column {name[:60]!r}: expected a number, text, boolean or null"
                )
    return {name: [_or_none(row[name]) for row in rows] for name in names}


def _read_csv(content: bytes) -> Columns:
    try:
        rows = csv_reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
        header = [name.strip() for name in next(rows, [])]
        if twice := sorted({name for name in header if header.count(name) > 1}):
            raise DataError(f"the header has the column {twice[0]!r} more than once")
        records: list[list[str]] = []
        for row in rows:
            if not row:
                continue
            if len(row) != len(header):
                raise DataError(f"line {rows.line_num}: {len(row)} fields, but the header has {len(header)}")
            records.append(row)
    except UnicodeDecodeError as error:
        raise DataError(f"the body is not UTF-8: byte 0x{content[error.start]:02x}") from error
    except csv.Error as error:
        raise DataError(f"the body is not CSV: {error}") from error
    _check_number(len(records))
    return {name: [_or_none(row[at]) for row in records] for at, name in enumerate(header)}


def _check_number(rows: int) -> None:
    if not 0 < rows <= MAX_ROWS:
        raise DataError(
            ValidationIssue(f"the body has {rows:,} rows", hint=f"send 1 to {MAX_ROWS:,} rows per request")
        )


def _or_none(value: object) -> object:
    missing = not value.strip() if isinstance(value, str) else isinstance(value, float) and math.isnan(value)
    return None if missing else value
