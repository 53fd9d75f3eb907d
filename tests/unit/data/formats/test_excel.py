"""A sheet of a workbook is read as the same table as a CSV, and messages name the row of the sheet."""

from __future__ import annotations

import csv
import datetime as dt
import io
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import xlsxwriter

from dmls_core import sandbox
from dmls_core.data.formats import compression
from dmls_core.data.formats.conversion import convert_all
from dmls_core.data.formats.excel import write_sheet
from dmls_core.errors import DataError
from dmls_core.spec.data_table import Data

DAY = dt.date(2026, 1, 31)
ROWS: list[list[Any]] = [["a", "sold", "y"], [1.5, DAY, "u"], [-2000, DAY, "x,\ny"], [None, None, "u"]]
TEXT = 'a,sold,y\n1.5,2026-01-31,u\n-2000,2026-01-31,"x, y"\n,,u\n'


def workbook(path: Path, sheets: dict[str, Sequence[Sequence[Any]]], hidden: str = "", left: int = 0) -> Path:
    """Write sheets with the first column at ``left``."""
    with xlsxwriter.Workbook(path) as book:
        formats = {dt.date: book.add_format({"num_format": "dd.mm.yyyy"})}
        formats[dt.datetime] = book.add_format({"num_format": "dd.mm.yyyy hh:mm"})
        for name, rows in sheets.items():
            sheet = book.add_worksheet(name)
            for at, row in enumerate(rows):
                for column, value in enumerate(row, start=left):
                    sheet.write(at, column, value, formats.get(type(value)))
            if name == hidden:
                sheet.hide()
            else:
                sheet.activate()
    return path


def read(path: Path, folder: Path, **keys: Any) -> list[list[str]]:
    """Convert a workbook, and return the rows of the CSV without the line breaks above its header."""
    (file,) = convert_all([str(path)], Data(**keys).model_dump(), str(folder / "out"))
    rows = list(csv.reader(io.StringIO(Path(file).read_text(), newline="")))
    return [[cell.strip() for cell in row] for row in rows]


@pytest.mark.parametrize(
    ("sheets", "left", "keys"),
    [
        ({"Data": ROWS}, 0, {}),
        ({"Data": [[], [], *ROWS]}, 3, {}),
        ({"Data": [["Sales"], [], *ROWS]}, 0, {"skip_rows": 2}),
        ({"Notes": [["read me"], ["please"]], "Data": ROWS}, 0, {}),
        ({"Old": [["a", "y"], [3, "v"]], "Data": ROWS}, 0, {"sheet": "Data"}),
    ],
    ids=["plain", "offset", "title", "first table", "named"],
)
def test_a_sheet_is_read_as_a_table(
    tmp_path: Path, sheets: dict[str, Any], left: int, keys: dict[str, Any]
) -> None:
    path = workbook(tmp_path / "d.xlsx", sheets, left=left)
    assert read(path, tmp_path, **keys) == list(csv.reader(io.StringIO(TEXT)))


def test_a_hidden_sheet_is_read_only_by_name(tmp_path: Path) -> None:
    path = workbook(tmp_path / "d.xlsx", {"Old": [["a", "y"], [3, "v"]], "Data": ROWS}, hidden="Old")
    assert read(path, tmp_path)[1][0] == "1.5"
    assert read(path, tmp_path / "named", sheet="Old")[1] == ["3", "v"]


def test_values_keep_their_meaning(tmp_path: Path) -> None:
    moment = dt.datetime(2026, 1, 31, 14, 5)  # noqa: DTZ001 - Excel has no zones
    path = tmp_path / "d.xlsx"
    with xlsxwriter.Workbook(path) as book:
        sheet = book.add_worksheet()
        sheet.write_row(0, 0, ["whole", "large", "true", "moment", "duration", "error", "code"])
        sheet.write_row(1, 0, [3.0, 1e300, True])
        sheet.write_datetime(1, 3, moment, book.add_format({"num_format": "yyyy-mm-dd hh:mm"}))
        sheet.write(1, 4, 1.25, book.add_format({"num_format": "[h]:mm"}))
        sheet.write_formula(1, 5, "=1/0", None, "#DIV/0!")
        sheet.write(1, 6, "00123")
    assert read(path, tmp_path)[1] == ["3", "1e+300", "true", "2026-01-31 14:05:00", "1.25", "", "00123"]


def test_numbers_have_the_decimal_mark_of_the_texts(tmp_path: Path) -> None:
    path = workbook(tmp_path / "d.xlsx", {"Data": [["a", "y"], [1.5, "u"], ["2.000,25", "v"]]})
    assert read(path, tmp_path, decimal=",", thousands=".") == [["a", "y"], ["1.5", "u"], ["2000.25", "v"]]


def test_an_old_workbook_is_read(tmp_path: Path) -> None:
    rows = read(Path(__file__).parent / "readings.xls", tmp_path)
    assert rows[:2] == [["width", "sold", "kind"], ["1.5", "2026-01-01", "a"]]
    assert len(rows) == 41


def changed(path: Path, new: bytes) -> Path:
    path.write_bytes(new)
    return path


@pytest.mark.parametrize(
    ("make", "keys", "message", "hint"),
    [
        (lambda p: p, {"sheet": "data"}, "no such sheet", "set"),
        (lambda p: workbook(p, {"One": [], "Two": []}), {}, "no sheet has a table", "set"),
        (lambda p: workbook(p, {"One": []}), {"sheet": "One"}, "is empty", "set"),
        (lambda p: changed(p, p.read_bytes()[:3000]), {}, "cannot be read", "damaged"),
        (lambda p: changed(p, b""), {}, "not an Excel workbook", "csv"),
        (lambda p: changed(p, b"<html><table>"), {}, "not an Excel workbook", "HTML"),
        (lambda p: changed(p, b"\xd0\xcf\x11\xe0" + bytes(5000)), {}, "protected by a password", "without"),
        (lambda p: p, {"skip_rows": 9}, "no rows below skip_rows", ""),
    ],
    ids=["name", "empty", "empty sheet", "cut", "nothing", "html", "password", "skip_rows"],
)
def test_what_is_wrong_is_said(tmp_path: Path, make: Any, keys: Any, message: str, hint: str) -> None:
    path = make(workbook(tmp_path / "d.xlsx", {"Data": ROWS}))
    with pytest.raises(DataError) as caught:
        read(path, tmp_path, **keys)
    (issue,) = caught.value.issues
    assert issue.file == "d.xlsx"
    assert message in issue.message
    assert hint in issue.hint
    if message == "no such sheet":
        assert issue.expected == "'Data'"


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "SMALLEST", 1_000)
    path = workbook(tmp_path / "d.xlsx", {"Data": [["a", "y"], *([1, "u"] for _ in range(30_000))]})
    monkeypatch.setattr(compression, "RATIO", 2)
    with pytest.raises(DataError, match="the workbook unpacks to more than"):
        read(path, tmp_path)


def test_a_part_that_hides_its_size_is_refused(tmp_path: Path) -> None:
    path = workbook(tmp_path / "d.xlsx", {"Data": ROWS})
    with zipfile.ZipFile(path) as archive:
        size = archive.getinfo("xl/worksheets/sheet1.xml").file_size
    content = path.read_bytes()
    assert content.count(size.to_bytes(4, "little")) >= 2
    path.write_bytes(content.replace(size.to_bytes(4, "little"), (size - 9).to_bytes(4, "little")))
    with pytest.raises(DataError, match="the workbook cannot be read"):
        read(path, tmp_path)


def test_texts_that_many_cells_share_do_not_grow_beyond_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = workbook(tmp_path / "d.xlsx", {"Data": [["a", "y"], *([1, "u" * 30_000] for _ in range(200))]})
    monkeypatch.setattr(compression, "SMALLEST", 1_000_000)
    monkeypatch.setattr(compression, "RATIO", 1)
    with pytest.raises(DataError, match="more than 1,000,000 bytes of text"):
        write_sheet(path, None, tmp_path / "out")
    assert (tmp_path / "out").stat().st_size <= 1_000_000


def test_a_sheet_with_its_last_cell_far_away_ends_the_sandbox_alone(tmp_path: Path) -> None:
    rows: list[list[Any]] = [["a", "y"], [1, "u"]]
    path = workbook(tmp_path / "d.xlsx", {"Data": rows})
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    sheet = (
        parts["xl/worksheets/sheet1.xml"].replace(b'r="2"', b'r="1048576"').replace(b'"B2"', b'"XFD1048576"')
    )
    with zipfile.ZipFile(path, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, sheet if name == "xl/worksheets/sheet1.xml" else part)
    with pytest.raises(sandbox.SandboxError):
        sandbox.run(convert_all, [str(path)], Data().model_dump(), str(tmp_path / "out"), file="d.xlsx")


def test_the_text_is_cut_at_a_row(tmp_path: Path) -> None:
    path = workbook(tmp_path / "d.xlsx", {"Data": [["a", "y"], [], *([n, "u"] for n in range(5_000))]})
    found = write_sheet(path, None, tmp_path / "out", head=1_000)
    text = (tmp_path / "out").read_text()
    assert not found.complete
    assert text.startswith("a,y\n\n0,u\n")
    assert text.endswith(",u\n")
    assert text.count("\n") == found.lines
    assert write_sheet(path, None, tmp_path / "out").lines == 5_002
