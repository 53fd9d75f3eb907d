"""Write the CSV of DMLS: UTF-8, commas, decimal points, a header; each record in the line of the original.

Texts that are numbers in another notation become plain ones here, also those of Parquet and of requests.
"""

from __future__ import annotations

import csv
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import polars as pl

from dmls_core.data.formats.csv_dialect import Record, check_structure, records
from dmls_core.data.formats.detection import number_pattern, other_mark, spelled_mark
from dmls_core.data.formats.missing_marks import unmarked
from dmls_core.errors import DataError, ValidationIssue
from dmls_core.spec.data_table import Data
from dmls_core.spec.issues import quoted


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
    if data.has_notation:
        notations = [data.notation(name) for name in names]
        if wrong := _find_wrong(frame, names, notations):
            row, issue = wrong
            raise DataError(replace(issue, file=target.name, line=row + 1 + above))
        frame = frame.select(
            _number(pl.col(column), *notation) for column, notation in zip(columns, notations, strict=True)
        )
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


def plain_numbers(
    columns: Mapping[str, Sequence[str | None]], data: Data, lines: Sequence[int] = ()
) -> dict[str, list[Any]]:
    """Return columns of texts with plain numbers in place of those that are written as ``data`` says.

    Raise ``DataError`` for a number in another notation; ``lines`` are those of the rows, if there are any.
    """
    notations = [data.notation(name) for name in columns]
    texts = [pl.Series(str(at), values, pl.String) for at, values in enumerate(columns.values())]
    frame = pl.LazyFrame(texts)
    if wrong := _find_wrong(frame, list(columns), notations):
        row, issue = wrong
        raise DataError(replace(issue, line=lines[row] if lines else None))
    numbers = [_number(pl.col(text.name), *notation) for text, notation in zip(texts, notations, strict=True)]
    return dict(zip(columns, (column.to_list() for column in frame.select(numbers).collect()), strict=True))


def rewrite_parquet(path: Path, data: Data, target: Path) -> None:
    """Write a Parquet file anew, a part of it in memory at a time.

    Its texts have plain numbers in place of those that are written as ``data`` says, and null in place of the
    marks of missing values. Raise ``DataError`` for a number in another notation.
    """
    scan = pl.scan_parquet(path, glob=False)
    schema = scan.collect_schema()
    notations = {name: data.notation(name) for name, dtype in schema.items() if dtype == pl.String}
    names = list(notations)
    if wrong := _find_wrong(scan.select(names), names, list(notations.values())):
        row, issue = wrong
        raise DataError(replace(issue, message=f"{issue.message} (row {row + 1})", file=path.name))
    plain = scan.with_columns(_number(pl.col(name), *notation) for name, notation in notations.items())
    if data.missing:
        plain = plain.with_columns(
            unmarked(pl.col(name).cast(pl.String), data.missing).cast(dtype).alias(name)
            for name, dtype in schema.items()
            if isinstance(dtype, pl.String | pl.Categorical | pl.Enum)
        )
    plain.sink_parquet(target, compression="lz4")


def _number(column: pl.Expr, decimal: str, thousands: str, unit: str) -> pl.Expr:
    if (decimal, thousands, unit) == (".", "", ""):
        return column
    plain = column
    if unit:
        plain = plain.str.replace_all(unit, "", literal=True).str.replace_all(r"\s", "")
    if thousands:
        plain = plain.str.strip_chars().str.replace_all(spelled_mark(thousands), "")
    plain = plain.str.replace(decimal, ".", literal=True)
    return (
        pl.when(column.str.contains(number_pattern(decimal, thousands, unit))).then(plain).otherwise(column)
    )


def _find_wrong(
    frame: pl.LazyFrame, names: Sequence[str], notations: Sequence[tuple[str, str, str]]
) -> tuple[int, ValidationIssue] | None:
    """Return the first row with a number in another notation, which would be read as a wrong value."""

    def is_wrong(column: pl.Expr, notation: tuple[str, str, str]) -> pl.Expr:
        pattern = rf"^\s*[+-]?\d*{re.escape(other_mark(notation[0]))}\d+\s*$"
        return column.str.contains(pattern) & ~column.str.contains(number_pattern(*notation))

    columns = dict(zip(frame.collect_schema().names(), zip(names, notations, strict=True), strict=True))
    wrong = [
        pl.when(is_wrong(pl.col(column), notation)).then(pl.col(column))
        for column, (_, notation) in columns.items()
        if notation != (".", "", "")  # other marks of a plain column are no numbers for any reader
    ]
    if not wrong:
        return None
    selected = frame.select(wrong).with_row_index("\0row")
    rows = selected.filter(~pl.all_horizontal(pl.exclude("\0row").is_null())).head(1)
    if (first := rows.collect(engine="streaming")).is_empty():
        return None
    row, *cells = first.row(0)
    column, cell = next((name, cell) for name, cell in zip(first.columns[1:], cells, strict=True) if cell)
    name, (decimal, _, _) = columns[column]
    other = other_mark(decimal)
    hint = f'if the column has another decimal mark, set [data] numbers.{quoted(name)}.decimal = "{other}"'
    if re.fullmatch(number_pattern(decimal, other), cell):
        hint = f'if these are thousands, set thousands = "{other}" in [data]; {hint}'
    message = f'is a number in another notation than decimal = "{decimal}"'
    return row, ValidationIssue(message, hint, key=name, found=cell[:80])
