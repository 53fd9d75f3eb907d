"""The formats that ship with DMLS pass the suite of those that others add."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
import xlsxwriter

from dmls_core.data.formats.conversion import convert
from dmls_core.spec.data_table import Data
from dmls_core.testing import FormatSuite
from dmls_core.testing.formats import ColumnValues

GUIDE = Path(__file__).parents[4] / "docs" / "extending" / "formats.md"


class TestTextOfTheGuide(FormatSuite):
    """The guide's format of text, which only the name of a file shows."""

    name = "fixed-width"

    @pytest.fixture(autouse=True)
    def installed(self, install_format: Callable[[str, str], None]) -> None:
        (block,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
        install_format("fixed-width = format_of_a_plugin:FixedWidthFormat", block)

    def write(self, columns: ColumnValues, path: Path) -> None:
        lines = zip(*([name, *values] for name, values in columns.items()), strict=True)
        texts = (["" if cell is None else str(cell) for cell in line] for line in lines)
        path.write_text("".join(f"{''.join(map('{:50}'.format, line))}\n" for line in texts))

    def test_each_row_stays_in_its_line(self, tmp_path: Path) -> None:
        path = tmp_path / "a.fwf.gz"
        path.write_bytes(gzip.compress("city     size\nKöln,NRW   12\n\nUlm         3\n".encode()))

        plain = convert(path, self.data, tmp_path / "out")

        assert plain.read_text() == 'city,size\n"Köln,NRW",12\n\nUlm,3\n'


class TestCsv(FormatSuite):
    name = "csv"

    def write(self, columns: ColumnValues, path: Path) -> None:
        pl.DataFrame(columns).write_csv(path)


class TestSemicolons(FormatSuite):
    name = "csv"
    data = Data(delimiter=";", encoding="utf-16")

    def write(self, columns: ColumnValues, path: Path) -> None:
        path.write_bytes(pl.DataFrame(columns).write_csv(separator=";").encode("utf-16"))


class TestJsonLines(FormatSuite):
    name = "jsonl"

    def write(self, columns: ColumnValues, path: Path) -> None:
        rows = pl.DataFrame(columns).rows(named=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


class TestExcel(FormatSuite):
    name = "excel"

    def write(self, columns: ColumnValues, path: Path) -> None:
        with xlsxwriter.Workbook(path) as book:
            sheet = book.add_worksheet()
            for at, (name, values) in enumerate(columns.items()):
                sheet.write_column(0, at, [name, *values])


class TestParquet(FormatSuite):
    name = "parquet"

    def write(self, columns: ColumnValues, path: Path) -> None:
        pl.DataFrame(columns).write_parquet(path)
