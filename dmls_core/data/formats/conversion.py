"""Convert a file to the CSV of DMLS: text in another dialect, compressed text, JSON lines, or a workbook.

``[data]`` says how a file is written. Only ``convert`` reads those keys: everything behind it sees UTF-8,
commas, decimal points and a header. A record stays in its line, so messages name that of the original.
"""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import polars as pl

from dmls_core.data.formats.compression import DAMAGED, most_bytes, unpacked
from dmls_core.data.formats.csv_dialect import Record, check_structure, records
from dmls_core.data.formats.detection import spelled_mark
from dmls_core.data.formats.encodings import codec_of
from dmls_core.data.formats.excel import write_sheet
from dmls_core.data.formats.missing_marks import remove_marks, unmarked
from dmls_core.data.formats.names import format_of, needs_conversion
from dmls_core.data.formats.parquet_source import reading
from dmls_core.errors import DataError, ValidationIssue
from dmls_core.spec.data_table import Data

_HEAD = 1 << 16

UNREADABLE = (*DAMAGED, pl.exceptions.PolarsError, csv.Error)
"""What damaged files raise."""


def convert(path: Path, data: Data, folder: Path) -> Path:
    """Return a file as DMLS reads it: itself, or a new file of the same name in the empty ``folder``.

    Raises:
        DataError: the file is not what ``[data]`` says, with the line.
    """
    if not needs_conversion(path.name, data):
        return path
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / path.name
    kind = data.format or format_of(path.name)
    try:
        if kind == "parquet":
            with reading(path):
                remove_marks(path, data.missing, target)
        elif kind == "jsonl":
            _write(_json_lines(path, folder), data, target, 0)
        elif kind == "excel":
            _convert_sheet(path, data, target)
        else:
            plain = _sibling(target)
            _decode(path, data.encoding, plain)
            _convert_text(plain, data, target)
    except DataError as error:  # of a copy beside the target, which has another name
        raise DataError([replace(issue, file=path.name) for issue in error.issues]) from error
    except UNREADABLE as error:
        reason = str(error).split("\n", 1)[0][:200]
        raise DataError(
            ValidationIssue(
                "the file cannot be read",
                hint="it is damaged or incomplete: upload it again",
                file=path.name,
                found=reason,
            )
        ) from error
    return target


def convert_all(paths: Sequence[str], options: dict[str, Any], folder: str) -> list[str]:
    """Convert files to subfolders of ``folder``, in a sandbox; ``options`` are ``[data]`` as JSON data."""
    data = Data.model_validate(options)
    return [str(convert(Path(path), data, Path(folder) / str(at))) for at, path in enumerate(paths)]


@contextmanager
def converted(paths: Sequence[Path], options: Mapping[str, Any]) -> Iterator[list[Path]]:
    """Convert files for the time of a block, whose ``DataError`` names the original files and lines.

    ``options`` are ``[data]`` as JSON data. A format that a file's name shows overrides that of ``[data]``.

    Raises:
        DataError: a file is not what ``[data]`` says.
    """
    data = Data.model_validate(options)
    with tempfile.TemporaryDirectory(prefix="dmls-data-") as folder:
        originals, plain = {}, []
        for at, path in enumerate(paths):
            known = format_of(path.name)
            found = convert(
                path, data.model_copy(update={"format": None}) if known else data, Path(folder) / str(at)
            )
            originals[str(found)] = str(path)
            plain.append(found)
        try:
            with original_lines(paths[0].name, data):
                yield plain
        except DataError as error:
            issues = [replace(issue, file=originals.get(issue.file, issue.file)) for issue in error.issues]
            raise DataError(issues) from error


def line_shift(name: str, data: Data) -> int:
    """Return by how much a line of the converted file is larger than that of the original."""
    return int(not data.header or (data.format or format_of(name)) == "jsonl")


@contextmanager
def original_lines(name: str, data: Data) -> Iterator[None]:
    """Let a ``DataError`` about converted files, such as ``name``, name the lines of the originals."""
    try:
        yield
    except DataError as error:
        if not line_shift(name, data):
            raise
        raise DataError(
            [replace(issue, line=max(1, issue.line - 1) if issue.line else None) for issue in error.issues]
        ) from None


def _sibling(target: Path) -> Path:
    return target.with_name(f"{target.name}.text")


def _convert_sheet(path: Path, data: Data, target: Path) -> None:
    plain = _sibling(target)
    write_sheet(path, data.sheet, plain, decimal=data.decimal)
    _convert_text(plain, data.model_copy(update={"delimiter": ","}), target)


def _convert_text(plain: Path, data: Data, target: Path) -> None:
    """Convert a text in UTF-8."""
    head: list[Record] = []
    for record in records(plain):
        head.append(record)
        if len(head) > data.skip_rows and record.raw:
            break
    else:
        if not data.skip_rows:
            raise DataError(_empty(target.name))
        raise DataError(ValidationIssue("the file has no rows below skip_rows", file=target.name))
    first = head[-1]
    cells = first.fields(data.delimiter)
    above = first.line + first.lines - 1 if data.header else first.line - 1
    # Polars counts the columns by the first line that it reads.
    below = islice(records(plain), len(head) if data.header else len(head) - 1, None)
    above += sum(1 for _ in takewhile(lambda record: not record.raw, below))
    schema = {f"c{at}": pl.String() for at in range(len(cells))}
    scan = pl.scan_csv(
        plain, separator=data.delimiter, has_header=False, skip_lines=above, schema=schema, glob=False
    )
    names = [cell.strip() for cell in cells] if data.header else None
    ragged = scan.select(pl.col(f"c{len(cells) - 1}").is_null().any())
    try:
        if not ragged.collect(engine="streaming").item():
            _write((scan, names), data, target, above)
            return
    except pl.exceptions.PolarsError:
        pass
    columns = names or [f"column_{at}" for at in range(1, len(cells) + 1)]
    if issues := check_structure(plain, above, columns, data.delimiter):
        raise DataError(issues)
    _write((scan, names), data, target, above)


def _empty(file: str) -> ValidationIssue:
    return ValidationIssue("the file is empty", hint="upload it again with its rows", file=file)


def _decode(path: Path, encoding: str, target: Path) -> None:
    """Write a text as UTF-8, with line feeds at the ends of lines."""
    most, written = most_bytes(path), 0
    with unpacked(path) as file:
        head = file.read(_HEAD)
    name = codec_of(encoding, head)
    if encoding == "utf-16" and head and b"\0" not in head:  # any comma or line break would have one
        raise DataError(_undecodable(path, encoding))
    with unpacked(path) as file, target.open("w", encoding="utf-8", newline="\n") as out:
        text = io.TextIOWrapper(file, encoding=name, newline=None)
        try:
            while part := text.read(1 << 20):
                written += out.write(part)
                if written > most:
                    message = f"the file unpacks to more than {most:,} bytes"
                    raise DataError(ValidationIssue(message, file=path.name))
        except UnicodeError:
            raise DataError(_undecodable(path, encoding)) from None
        text.detach()


def _undecodable(path: Path, encoding: str) -> ValidationIssue:
    line, found = None, ""
    if encoding != "utf-16":  # its line ends have two bytes
        with unpacked(path) as file:
            for number, raw in enumerate(file, start=1):
                try:
                    raw.decode(encoding)
                except UnicodeError:
                    line, found = number, raw[:80].decode(encoding, "backslashreplace").strip()
                    break
    hint = "set [data] encoding to that of the file"
    return ValidationIssue(f"the text is not {encoding}", hint, file=path.name, line=line, found=found)


def _json_lines(path: Path, folder: Path) -> tuple[pl.LazyFrame, list[str]]:
    plain = folder / "lines"
    _decode(path, "utf-8", plain)
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
            raise DataError(_empty(path.name)) from None
        raise error
    if nested := [name for name, dtype in frame.schema.items() if dtype.is_nested()]:
        message, hint = "contains lists or objects", "write one value per key"
        places = {name: _nested_line(plain, name) for name in nested}
        raise DataError(
            [ValidationIssue(message, hint, file=path.name, line=places[name], key=name) for name in nested]
        )
    return frame.lazy().select(_as_text(name, dtype) for name, dtype in frame.schema.items()), frame.columns


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
    column = pl.col(name).cast(pl.String)
    return column.str.replace_all(r"[\r\n]+", " ") if dtype == pl.String else column


def _write(table: tuple[pl.LazyFrame, list[str] | None], data: Data, target: Path, above: int) -> None:
    """Write a header and the rows, each in its line: ``above`` lines of the original are above the rows."""
    frame, names = table
    columns = frame.collect_schema().names()
    names = names or [f"column_{at}" for at in range(1, len(columns) + 1)]
    body = target.with_name(f"{target.name}.body")
    if data.decimal == "," or data.thousands:
        _check_points(frame, names, data, target, above)
        frame = frame.select(_number(pl.col(name), data) for name in columns)
    marks = ("", *data.missing)
    frame.select(
        unmarked(pl.col(name), marks) if data.missing else pl.when(pl.col(name) != "").then(pl.col(name))
        for name in columns
    ).sink_csv(body, include_header=False)
    with target.open("w", encoding="utf-8", newline="") as out:
        # Line breaks in the first name, which no reader keeps, put the header into its line.
        first = "\n" * (above - data.header) + names[0]
        csv.writer(out, lineterminator="\n").writerow([first, *names[1:]])
        with body.open(encoding="utf-8", newline="") as rows:
            shutil.copyfileobj(rows, out, 1 << 20)
    body.unlink()


def number_pattern(decimal: str, thousands: str) -> str:
    """Return a regular expression of the numbers in a notation."""
    mark = spelled_mark(thousands)
    whole = rf"(?:\d{{1,3}}(?:{mark}\d{{3}})+|\d+)" if thousands else r"\d+"
    point = re.escape(decimal)
    return rf"^\s*[+-]?(?:{whole}(?:{point}\d*)?|{point}\d+)(?:[eE][+-]?\d+)?\s*$"


def _number(column: pl.Expr, data: Data) -> pl.Expr:
    plain = column
    if data.thousands:
        plain = plain.str.strip_chars().str.replace_all(spelled_mark(data.thousands), "")
    plain = plain.str.replace(data.decimal, ".", literal=True)
    return (
        pl.when(column.str.contains(number_pattern(data.decimal, data.thousands)))
        .then(plain)
        .otherwise(column)
    )


def _check_points(frame: pl.LazyFrame, names: Sequence[str], data: Data, target: Path, above: int) -> None:
    """Raise ``DataError`` for a number in another notation, which would be read as a wrong value."""
    other = "." if data.decimal == "," else ","
    pattern = rf"^\s*[+-]?\d*{re.escape(other)}\d+\s*$"
    own = number_pattern(data.decimal, data.thousands)
    wrong = [
        (pl.col(name).str.contains(pattern) & ~pl.col(name).str.contains(own)).fill_null(value=False)
        for name in frame.collect_schema().names()
    ]
    found = frame.with_row_index("\0row").filter(pl.any_horizontal(wrong)).head(1).collect(engine="streaming")
    if found.is_empty():
        return
    row, *cells = found.row(0)
    at = next(
        n for n, cell in enumerate(cells) if cell and re.match(pattern, cell) and not re.match(own, cell)
    )
    hint = f'set [data] thousands = "{other}", or correct the value'
    line = row + 1 + above
    message = f'is a number in another notation than decimal = "{data.decimal}"'
    raise DataError(
        ValidationIssue(message, hint, file=target.name, line=line, key=names[at], found=cells[at][:80])
    )
