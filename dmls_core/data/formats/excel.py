"""Excel workbooks: a sheet becomes CSV text, each row the line with its number."""

from __future__ import annotations

import csv
import datetime as dt
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from dmls_core.data.formats.base import SAMPLE_BYTES, FileSample, Format
from dmls_core.data.formats.compression import WORKBOOKS, ZIP, most_bytes
from dmls_core.errors import DataError, ValidationIssue

if TYPE_CHECKING:
    import python_calamine

    from dmls_core.spec.data_table import Data

_OLE = b"\xd0\xcf\x11\xe0"
_EXACT = 2**53
"""Integers below are exact as 64-bit floating point numbers, which all numbers of Excel are."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """A sheet that was read.

    Attributes:
        name: its name.
        tables: the visible sheets of the workbook with the rows below their first one, in its order.
        lines: lines that were written.
        complete: whether these are all rows of the sheet.
    """

    name: str
    tables: Mapping[str, int]
    lines: int
    complete: bool


class ExcelFormat(Format):
    """A workbook, of which one sheet is read."""

    name, title = "excel", "an Excel workbook"
    suffixes = (".xlsx", ".xlsm", ".xlsb", ".xls")
    keys = frozenset({"decimal", "thousands", "numbers", "header", "skip_rows", "sheet"})

    def detect(self, head: bytes) -> Mapping[str, Any] | None:
        """Return no keys; None if the file begins as no workbook does."""
        return {} if head.startswith(WORKBOOKS) else None

    def check(self, file: str, head: bytes) -> list[ValidationIssue]:
        """Return the issue of a file that is not a workbook, and what it may be."""
        return [] if self.detect(head) is not None else [_not_a_workbook(file, head[:4])]

    def convert(self, path: Path, data: Data, target: Path) -> None:
        """Write the sheet as DMLS's CSV."""
        from dmls_core.data.formats.plain_csv import convert_text

        plain = target.with_name(f"{target.name}.text")
        write_sheet(path, data.sheet, plain, decimal=data.decimal)
        convert_text(plain, data.model_copy(update={"delimiter": ","}), target)

    def sample(self, path: Path, data: Data, target: Path, *, rows: int, seconds: float) -> FileSample:
        """Write the first rows of the sheet as text, as they are."""
        sheet = write_sheet(path, data.sheet, target, decimal=data.decimal, head=SAMPLE_BYTES)
        return FileSample(
            sheet.lines if sheet.complete else None,
            complete=sheet.complete,
            spread=sheet.complete,
            table=sheet.name,
            tables=sheet.tables,
        )


def write_sheet(
    path: Path, sheet: str | None, target: Path, *, decimal: str = ".", head: int | None = None
) -> Sheet:
    """Write a sheet, by default the first visible one with a table, as CSV text with commas.

    Only the rows in the first ``head`` bytes of the text are written, if given. Numbers have the ``decimal``
    mark; dates and times are in ISO 8601, durations are days; #DIV/0! and other errors are empty.

    Raises:
        DataError: this is not a workbook, it has no such sheet, or the sheet is empty or too large.
    """
    from python_calamine import CalamineError, load_workbook

    most = most_bytes(path)
    try:
        with path.open("rb") as file:
            _check_container(path, file, most)
            with load_workbook(file) as workbook:
                names = _visible(workbook)
                rows = _open(workbook, sheet, names, path.name)
                written, complete = _write(rows, target, head or most, decimal)
                # A further sheet is parsed for its size, so only where someone reads that.
                sheets = [
                    rows if name == rows.name else workbook.get_sheet_by_name(name) for name in names if head
                ]
                tables = {one.name: max(0, one.height - 1) for one in sheets}
    except (CalamineError, zipfile.BadZipFile) as error:
        raise _unreadable(path, str(error)) from error
    if not complete and head is None:
        raise DataError(ValidationIssue(f"the sheet has more than {most:,} bytes of text", file=path.name))
    return Sheet(rows.name, tables, written, complete)


def _check_container(path: Path, file: IO[bytes], most: int) -> None:
    """Raise if the file is neither kind of workbook, or its parts are damaged or unpack to too much."""
    start = file.read(4)
    if start == ZIP:
        with zipfile.ZipFile(file) as archive:
            if sum(part.file_size for part in archive.infolist()) > most:
                message = f"the workbook unpacks to more than {most:,} bytes"
                raise DataError(ValidationIssue(message, "save the table as CSV or Parquet", file=path.name))
            # Reads no more than the declared sizes, which the reader of sheets does not check.
            if archive.testzip() is not None:
                raise zipfile.BadZipFile("a part has a wrong size or checksum")
    elif start != _OLE:
        raise DataError(_not_a_workbook(path.name, start))
    file.seek(0)


def _not_a_workbook(file: str, start: bytes) -> ValidationIssue:
    shown = "an empty file" if not start else repr(start)
    hint = "if it is text, give it a name that ends in .csv; else save it as .xlsx"
    if start.startswith(b"<"):
        hint = "it is HTML or XML, which Excel also opens: save it there as .xlsx"
    return ValidationIssue("the file is not an Excel workbook", hint, file=file, found=shown)


def _unreadable(path: Path, reason: str) -> DataError:
    with path.open("rb") as file:
        locked = file.read(4) == _OLE and path.suffix.lower() != ".xls"
    message = "the workbook is protected by a password" if locked else "the workbook cannot be read"
    hint = "save it without one" if locked else "it is damaged or incomplete: save and upload it again"
    return DataError(ValidationIssue(message, hint, file=path.name, found=reason[:200]))


def _visible(workbook: python_calamine.CalamineWorkbook) -> list[str]:
    from python_calamine import SheetTypeEnum, SheetVisibleEnum

    worksheets = [one for one in workbook.sheets_metadata if one.typ == SheetTypeEnum.WorkSheet]
    return [one.name for one in worksheets if one.visible == SheetVisibleEnum.Visible]


def _open(
    workbook: python_calamine.CalamineWorkbook, sheet: str | None, names: Sequence[str], file: str
) -> python_calamine.CalamineSheet:
    """Return the sheet, by default the first one with a table."""
    listed = ", ".join(repr(name) for name in names)[:400] or "a visible sheet"
    if sheet is None:
        sheets = map(workbook.get_sheet_by_name, names)
        opened = next((one for one in sheets if one.height > 1 and one.width > 1), None)
        message = "no sheet has a table of two rows and two columns"
    elif sheet in workbook.sheet_names:
        opened = workbook.get_sheet_by_name(sheet)
        opened, message = opened if opened.start else None, "the sheet is empty"
    else:
        opened, message = None, "the workbook has no such sheet"
    if opened is None:
        hint = "set [data] sheet to one of them" if names else "make one visible"
        raise DataError(
            ValidationIssue(message, hint, file=file, key="data.sheet", found=sheet or "", expected=listed)
        )
    return opened


def _write(sheet: python_calamine.CalamineSheet, target: Path, most: int, decimal: str) -> tuple[int, bool]:
    """Write the rows up to ``most`` bytes, without empty ones at the end; return their number, and if all."""
    lines, empty = 0, 0
    with target.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        for row in sheet.iter_rows():
            cells = [_text(value, decimal) for value in row]
            if not any(cells):
                empty += 1
                continue
            end = out.tell()
            out.write("\n" * empty)
            writer.writerow(cells)
            if out.tell() > most:
                out.seek(end)
                out.truncate()
                return lines, False
            lines, empty = lines + empty + 1, 0
    return lines, True


def _text(value: Any, decimal: str) -> str:  # noqa: ANN401 - any value of a cell
    match value:
        case str():
            return value if value.isprintable() else " ".join(value.splitlines())
        case bool():
            return str(value).lower()
        case dt.timedelta():
            return _text(value / dt.timedelta(days=1), decimal)
        case dt.datetime():
            return value.isoformat(sep=" ")
        case dt.date() | dt.time():
            return value.isoformat()
    number = int(value) if abs(value) < _EXACT and value == int(value) else value
    return repr(number).replace(".", decimal)
