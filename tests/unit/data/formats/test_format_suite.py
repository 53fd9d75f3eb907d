"""The formats that ship with DMLS pass the suite of those that others add."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import xlsxwriter

from dmls_core.spec.data_table import Data
from dmls_core.testing import FormatSuite
from dmls_core.testing.formats import ColumnValues

GUIDE = Path(__file__).parents[4] / "docs" / "extending" / "formats.md"


def test_the_text_format_of_the_guide(tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(block, names)
    path = tmp_path / "a.fwf.gz"
    path.write_bytes(gzip.compress("city     size\nKöln,NRW   12\nUlm         3\n".encode()))

    names["FixedWidthFormat"]().convert(path, Data(), tmp_path / "out")

    assert (tmp_path / "out").read_text() == 'city,size\n"Köln,NRW",12\nUlm,3\n'


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
