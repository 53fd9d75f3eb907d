"""Write the CSV of DMLS: UTF-8, commas, decimal points, a header; each record in the line of the original."""

from __future__ import annotations

import csv
import re
import shutil
from collections.abc import Sequence
from itertools import islice, takewhile
from pathlib import Path

import polars as pl

from dmls_core.data.formats.csv_dialect import Record, check_structure, records
from dmls_core.data.formats.detection import spelled_mark
from dmls_core.data.formats.missing_marks import unmarked
from dmls_core.errors import DataError, ValidationIssue
from dmls_core.spec.data_table import Data


def convert_text(plain: Path, data: Data, target: Path) -> None:
    """Convert a text in UTF-8 that is written as ``data`` says.

    Raises:
        DataError: its rows have different numbers of cells, or a number is in another notation.
    """
    head: list[Record] = []
    for record in records(plain):
        head.append(record)
        if len(head) > data.skip_rows and record.raw:
            break
    else:
        if not data.skip_rows:
            hint = "upload it again with its rows"
            raise DataError(ValidationIssue("the file is empty", hint, file=target.name))
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
            write_table(scan, names, data, target, above=above)
            return
    except pl.exceptions.PolarsError:
        pass
    columns = names or [f"column_{at}" for at in range(1, len(cells) + 1)]
    if issues := check_structure(plain, above, columns, data.delimiter):
        raise DataError(issues)
    write_table(scan, names, data, target, above=above)


def write_table(
    frame: pl.LazyFrame, names: list[str] | None, data: Data, target: Path, *, above: int
) -> None:
    """Write a header and rows of texts, each in its line: ``above`` lines are above them in the original."""
    columns = frame.collect_schema().names()
    names = names or [f"column_{at}" for at in range(1, len(columns) + 1)]
    body = target.with_name(f"{target.name}.body")
    if data.decimal == "," or data.thousands:
        _check_points(frame, names, data, target, above)
        frame = frame.select(_number(pl.col(name), data) for name in columns)
    missing_values = ("", *data.missing)
    frame.select(
        unmarked(pl.col(name), missing_values)
        if data.missing
        else pl.when(pl.col(name) != "").then(pl.col(name))
        for name in columns
    ).sink_csv(body, include_header=False)
    with target.open("w", encoding="utf-8", newline="") as out:
        # Line breaks in the first name, which no reader keeps, put the header into its line.
        first = "\n" * (above - data.header) + names[0]
        csv.writer(out, lineterminator="\n").writerow([first, *names[1:]])
        with body.open(encoding="utf-8", newline="") as rows:
            shutil.copyfileobj(rows, out, 1 << 20)
    body.unlink()


def _number_pattern(decimal: str, thousands: str) -> str:
    """Return a regular expression of the numbers in a notation."""
    separator = spelled_mark(thousands)
    integer = rf"(?:\d{{1,3}}(?:{separator}\d{{3}})+|\d+)" if thousands else r"\d+"
    point = re.escape(decimal)
    return rf"^\s*[+-]?(?:{integer}(?:{point}\d*)?|{point}\d+)(?:[eE][+-]?\d+)?\s*$"


def _number(column: pl.Expr, data: Data) -> pl.Expr:
    plain = column
    if data.thousands:
        plain = plain.str.strip_chars().str.replace_all(spelled_mark(data.thousands), "")
    plain = plain.str.replace(data.decimal, ".", literal=True)
    return (
        pl.when(column.str.contains(_number_pattern(data.decimal, data.thousands)))
        .then(plain)
        .otherwise(column)
    )


def _check_points(frame: pl.LazyFrame, names: Sequence[str], data: Data, target: Path, above: int) -> None:
    """Raise ``DataError`` for a number in another notation, which would be read as a wrong value."""
    other = "." if data.decimal == "," else ","
    pattern = rf"^\s*[+-]?\d*{re.escape(other)}\d+\s*$"
    number = _number_pattern(data.decimal, data.thousands)
    wrong = [
        (pl.col(name).str.contains(pattern) & ~pl.col(name).str.contains(number)).fill_null(value=False)
        for name in frame.collect_schema().names()
    ]
    rows = frame.with_row_index("\0row").filter(pl.any_horizontal(wrong)).head(1).collect(engine="streaming")
    if rows.is_empty():
        return
    row, *cells = rows.row(0)
    at = next(
        n for n, cell in enumerate(cells) if cell and re.match(pattern, cell) and not re.match(number, cell)
    )
    hint = f'set [data] thousands = "{other}", or correct the value'
    line = row + 1 + above
    message = f'is a number in another notation than decimal = "{data.decimal}"'
    raise DataError(
        ValidationIssue(message, hint, file=target.name, line=line, key=names[at], found=cells[at][:80])
    )
