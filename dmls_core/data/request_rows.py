"""Rows in the body of a request or response: JSON, CSV or Parquet."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import chain, dropwhile, islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from dmls_core.data.bad_cells import Place
from dmls_core.data.encoder import BadCell
from dmls_core.data.formats.csv_dialect import csv_reader, numbered
from dmls_core.data.formats.damage import readable
from dmls_core.data.formats.encodings import codec_of
from dmls_core.data.request_json import load_json
from dmls_core.errors import DataError, ValidationIssue

if TYPE_CHECKING:
    from _csv import Reader

    from dmls_core.spec.data_table import Data

JSON, CSV, PARQUET = "application/json", "text/csv", "application/vnd.apache.parquet"
MEDIA_TYPES = (JSON, CSV, PARQUET)

MAX_ROWS = 100_000
"""Rows of one request."""

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)

_HEAD = 4
"""Bytes that tell the kinds of UTF-16 apart."""

_FEW = 1_000
"""Numbers that Python converts faster than Polars."""

MAX_NAMES = 20
"""Columns that an error names."""
MAX_SHOWN = 60
"""Characters of a name or a value that an error shows."""

Columns = dict[str, list[Any]]


@dataclass(frozen=True, slots=True)
class RequestRows:
    """The rows of a request.

    Attributes:
        columns: values of the model's columns.
        ignored: other columns.
        header: all columns as sent, if the rows are a CSV.
        lines: the line where each row begins, if the rows are a CSV.
        is_json: whether the rows are a list of JSON objects.
    """

    columns: Columns
    ignored: Sequence[str] = ()
    header: Sequence[str] = ()
    lines: Sequence[int] = ()
    is_json: bool = False

    def locate(self, cell: BadCell) -> Place:
        """Return the line and the field of a cell of a CSV, or its pointer into JSON."""
        if self.is_json:
            return Place(pointer=json_pointer(cell.row, cell.column))
        if not self.lines:
            return Place()
        return Place(self.lines[cell.row], self.header.index(cell.column) + 1 if cell.column else None)


def json_pointer(row: int, column: str = "") -> str:
    """Return the pointer (RFC 6901, as the fragment of a URI) to a row, from 0, or one of its values."""
    key = quote(column.replace("~", "~0").replace("/", "~1"), safe="~")
    return f"#/{row}/{key}" if column else f"#/{row}"


def read_rows(
    content: bytes,
    media_type: str,
    features: Sequence[str],
    target: str,
    *,
    data: Data | None = None,
    strict: bool = False,
) -> RequestRows:
    """Return the columns ``features`` of rows, ``None`` for a missing value.

    A CSV is written as ``data`` says, by default with commas, decimal points and a header in UTF-8. A small
    body in Parquet may unpack to any size: call this in the sandbox for it.

    Raises:
        DataError: the rows are not of this format, there are none or too many, or they lack a column; with
            ``strict`` also if they have others.
    """
    if media_type == PARQUET:
        return _read_parquet(content, features, target, strict=strict)
    if media_type == JSON:
        return _read_json(content, features, target, strict=strict)
    # Imported here: pydantic is large, and no body in Parquet needs it.
    from dmls_core.spec.data_table import Data

    return _read_csv(content, data or Data(), features, target, strict=strict)


def check_columns(
    names: Collection[str], features: Sequence[str], target: str, *, strict: bool = False
) -> list[str]:
    """Return the columns that the model does not have.

    Raise ``DataError``, with every issue, if rows lack columns of the model, or have others and ``strict``.
    A request may have thousands of columns: its answer, and the time that it takes, stay small.
    """
    expected = set(features)
    others = [name for name in names if name not in expected]
    extra = others[:MAX_NAMES]
    similar = [name for name in extra if len(name) <= MAX_SHOWN]
    issues = []
    for name in features:
        if name not in names:
            close = get_close_matches(name, similar, 1)
            hint = f"rename {close[0]!r}" if close else "give its value, or null if it is missing"
            issues.append(ValidationIssue(f"column {name!r} is absent", hint=hint))
    for name in extra if strict or issues else ():
        if name == target:
            issues.append(ValidationIssue(f"column {name!r} is what the model predicts", hint="remove it"))
        else:
            hint = f"the model's columns are {', '.join(features[:MAX_NAMES])}"
            issues.append(ValidationIssue(f"the model has no column {name[:MAX_SHOWN]!r}", hint=hint))
    if issues:
        raise DataError(issues)
    return others


def write_rows(
    columns: Mapping[str, Sequence[Any] | NDArray[Any]],
    media_type: str,
    notes: Mapping[int, Sequence[str]] = MappingProxyType({}),
) -> bytes:
    """Return columns of predictions as a JSON list of objects, a CSV with a header, or a Parquet file.

    In JSON, the rows that ``notes`` has by their numbers from 0 have ``notes``, too.
    """
    if media_type == PARQUET:
        import polars as pl

        target = io.BytesIO()
        pl.DataFrame(columns).write_parquet(target)
        return target.getvalue()
    rows: Iterable[tuple[Any, ...]] = zip(*map(_shortest, columns.values()), strict=True)
    if media_type == CSV:
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
        return text.getvalue().encode()
    objects: list[dict[str, Any]] = [dict(zip(columns, row, strict=True)) for row in rows]
    for row, texts in notes.items():
        objects[row]["notes"] = texts
    return json.dumps(objects).encode()


def _shortest(values: Any) -> list[Any]:  # noqa: ANN401
    """Return an array as a list; a float32 as the shortest number that float32 reads back."""
    if getattr(values, "dtype", None) != np.float32:
        return list(values)
    if len(values) < _FEW:
        return [float(str(value)) for value in values]
    import polars as pl

    return pl.Series(values).cast(pl.String).cast(pl.Float64).to_list()


def _read_parquet(content: bytes, features: Sequence[str], target: str, *, strict: bool) -> RequestRows:
    import polars as pl

    with readable(Path("the request's body"), "it is not Parquet", "send Parquet, or another media type"):
        frame = pl.scan_parquet(io.BytesIO(content))
        rows = int(frame.select(pl.len()).collect().item())
        names = frame.collect_schema().names()
        ignored = check_columns(dict.fromkeys(names), features, target, strict=strict)
        table = frame.select(features).collect() if rows <= MAX_ROWS else pl.DataFrame()
    _check_number(rows)
    for name, dtype in table.schema.items():
        if dtype.is_nested() or dtype in {pl.Binary, pl.Object}:
            raise DataError(
                ValidationIssue(f"column {name!r} has values of type {dtype}", hint="give scalars")
            )
    texts = [name for name, dtype in table.schema.items() if not (dtype.is_numeric() or dtype == pl.Boolean)]
    numbers = [name for name, dtype in table.schema.items() if dtype.is_decimal()]
    values = table.with_columns(pl.col(texts).cast(pl.String), pl.col(numbers).cast(pl.Float64))
    columns = {name: [_or_none(value) for value in column] for name, column in values.to_dict().items()}
    return RequestRows(columns, ignored)


def _read_json(content: bytes, features: Sequence[str], target: str, *, strict: bool) -> RequestRows:
    _check_structure(content)
    rows = load_json(content)
    if isinstance(rows, dict):
        hint = 'send only the list: [{"column": 1.5, "other": "text"}, ...]'
        names = ", ".join(repr(name[:MAX_SHOWN]) for name in islice(rows, 3))
        message = f"the body is an object with the keys {names}, and not a list of rows"
        raise DataError(ValidationIssue(message, hint=hint))
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        hint = '[{"column": 1.5, "other": "text"}, ...]'
        raise DataError(ValidationIssue("the body is not a list of objects, one per row", hint=hint))
    _check_number(len(rows))
    for number, row in enumerate(rows, 1):
        if row.keys() != rows[0].keys():
            name = min(row.keys() ^ rows[0].keys())
            message = f"row {number} {'has' if name in row else 'lacks'} column {name[:60]!r}, unlike row 1"
            hint = "give each row the same columns, null if missing"
            raise DataError(ValidationIssue(message, hint, pointer=json_pointer(number - 1)))
    ignored = check_columns(rows[0], features, target, strict=strict)
    columns = {name: [row[name] for row in rows] for name in features}
    for name, values in columns.items():
        for number, value in enumerate(values, 1):
            if isinstance(value, (list, dict)):
                message = f"row {number}, column {name[:60]!r}: expected a number, text, boolean or null"
                raise DataError(ValidationIssue(message, pointer=json_pointer(number - 1, name)))
    plain = {name: list(map(_or_none, values)) for name, values in columns.items()}
    return RequestRows(plain, ignored, is_json=True)


def _check_structure(content: bytes) -> None:
    """Raise ``DataError`` if there are too many rows, or lists in them: as objects they take much memory."""
    if max(content.count(b"{"), content.count(b"[")) <= MAX_ROWS:
        return
    outside = _STRING.sub(b"", content)
    _check_number(max(1, outside.count(b"{")))
    if outside.count(b"[") > MAX_ROWS:
        raise DataError("the body has lists in its rows: give numbers, texts, booleans or null")


def _split_header(rows: Reader, data: Data) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """Return the names of the columns, and the rows with their lines; raise ``DataError`` without rows."""
    lined_rows = dropwhile(lambda row: not row[1], islice(numbered(rows), data.skip_rows, None))
    line, cells = next(lined_rows, (1, []))
    if not cells:
        _check_number(0)
    if data.header:
        return [name.strip() for name in cells], lined_rows
    return [f"column_{at}" for at in range(1, len(cells) + 1)], chain([(line, cells)], lined_rows)


def _read_csv(
    content: bytes, data: Data, features: Sequence[str], target: str, *, strict: bool
) -> RequestRows:
    try:
        text = content.decode(codec_of(data.encoding, content[:_HEAD])).removeprefix("\ufeff")
        rows = csv_reader(io.StringIO(text, newline=""), data.delimiter, strict=True)
        header, lined_rows = _split_header(rows, data)
        counts = Counter(header)
        if twice := next((name for name, count in counts.items() if count > 1), None):
            raise DataError(f"the header has the column {twice[:MAX_SHOWN]!r} more than once")
        ignored = check_columns(counts, features, target, strict=strict)
        records: list[list[str]] = []
        lines: list[int] = []
        for line, row in lined_rows:
            if not row:
                continue
            if len(row) != len(header):
                message = f"the record has {len(row)} fields, but the header has {len(header)}"
                raise DataError(ValidationIssue(message, line=line))
            records.append(row)
            lines.append(line)
            if len(records) > MAX_ROWS:
                break
    except UnicodeDecodeError as error:
        name = "UTF-8" if data.encoding == "utf-8" else data.encoding
        raise DataError(f"the body is not {name}: byte 0x{content[error.start]:02x}") from error
    except csv.Error as error:
        raise DataError(ValidationIssue(f"the body is not CSV: {error}", line=rows.line_num)) from error
    _check_number(len(records))
    positions = {name: at for at, name in enumerate(header)}
    columns = {name: [_or_none(row[positions[name]]) for row in records] for name in features}
    if data.has_notation:
        from dmls_core.data.formats.plain_csv import plain_numbers

        columns = plain_numbers(columns, data, lines)
    return RequestRows(columns, ignored, header, lines)


def _check_number(rows: int) -> None:
    if not 0 < rows <= MAX_ROWS:
        message = "the body has no rows" if not rows else f"the body has more than {MAX_ROWS:,} rows"
        raise DataError(ValidationIssue(message, hint=f"send 1 to {MAX_ROWS:,} rows per request"))


def _or_none(value: Any) -> Any:  # noqa: ANN401
    missing = not value.strip() if isinstance(value, str) else isinstance(value, float) and math.isnan(value)
    return None if missing else value
