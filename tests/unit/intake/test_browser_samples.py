"""What a browser reads of a file before its upload: the text of a compressed one, rows of a Parquet file."""

from __future__ import annotations

import datetime as dt
import io
import json
import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from dmls_core.data.formats.parquet_footer import USUAL, read_footer
from dmls_core.data.formats.thinning import CHUNK
from dmls_core.errors import DataError
from dmls_core.intake.schema_inference import HEAD, infer_parquet_schema, infer_schema, read_unpacked
from dmls_core.intake.schema_inference.parquet_sample import sent_frame, sent_sample

ROWS = 3_000


@pytest.fixture(scope="module")
def file() -> tuple[pl.DataFrame, bytes]:
    day = dt.date(2020, 1, 1)
    number = pl.int_range(ROWS, eager=True)
    frame = pl.DataFrame(
        {
            "size": number * 10,
            "half": (number // (ROWS // 2)).cast(pl.String),
            "day": [day + dt.timedelta(days=row) for row in range(ROWS)],
            "at": pl.Series([dt.datetime(2020, 1, 1, tzinfo=dt.UTC)] * ROWS).dt.convert_time_zone(
                "Europe/Berlin"
            ),
            "clock": [dt.time(row % 24, row % 60) for row in range(ROWS)],
            "price": (number / 4).cast(pl.Decimal(12, 2)),
            "large": number + 2**60,
            "ratio": [math.nan if row % 2 else math.inf for row in range(ROWS)],
            "flag": number % 2 == 0,
            "list": [[1]] * ROWS,
        }
    )
    content = io.BytesIO()
    frame.write_parquet(content)
    return frame, content.getvalue()


def sent(frame: pl.DataFrame, at: list[int], **changed: list[Any]) -> bytes:
    """Return rows as the page sends them."""
    rows = frame[at]
    columns = {
        "size": rows["size"].to_list(),
        "half": rows["half"].to_list(),
        "day": [f"{day}T00:00:00.000Z" for day in rows["day"]],
        "at": ["2020-01-01T00:00:00.000Z"] * len(at),
        "clock": [f"{time}.000" for time in rows["clock"]],
        "price": [float(price) for price in rows["price"]],
        "large": list(map(str, rows["large"])),
        "ratio": ["NaN" if math.isnan(value) else "Infinity" for value in rows["ratio"]],
        "flag": rows["flag"].to_list(),
        "list": [None] * len(at),
    } | changed
    return json.dumps({"columns": list(columns.values()), "whole": True}).encode()


def test_rows_that_a_browser_read_are_those_of_the_file(file: tuple[pl.DataFrame, bytes]) -> None:
    frame, content = file
    at = [0, 1, 1_500, 2_999]

    found = sent_frame(content[-HEAD:], sent(frame, at), len(content))

    expected = frame[at].with_columns(list=pl.lit(None, frame["list"].dtype))
    assert found.equals(expected, null_equal=True)
    assert found.schema == frame.schema


def test_a_large_parquet_file_is_profiled_all_over(file: tuple[pl.DataFrame, bytes]) -> None:
    frame, content = file
    tail, rows = content[len(content) // 2 :], sent(frame, list(range(0, ROWS, 100)))

    found = infer_parquet_schema("a.parquet", tail + rows, len(content), None, len(rows))

    columns = {column["name"]: column for column in found["columns"]}
    assert (found["rows"], found["seen"], found["spread"]) == (ROWS, 30, True)
    assert (columns["size"]["high"], columns["half"]["distinct"]) == (29_000, 2)
    assert "too large to be distinct" in columns["large"]["reason"]
    assert "large" not in found["document"]["columns"].get("features", [])


@pytest.mark.parametrize(
    "wrong", [b"no JSON", b"[]", b"{}", b'{"columns": [[1]], "whole": true}', b"[" * 100_000]
)
def test_rows_of_another_file_leave_the_columns_and_types(
    file: tuple[pl.DataFrame, bytes], wrong: bytes
) -> None:
    frame, content = file

    found = sent_sample("a.parquet", content[-HEAD:], wrong, len(content))

    assert (found.names, found.seen, found.rows) == (tuple(frame.columns), 0, ROWS)


def test_a_value_of_another_type_is_missing(file: tuple[pl.DataFrame, bytes]) -> None:
    frame, content = file

    found = sent_frame(content[-HEAD:], sent(frame, [0], day=["+275760-09-13T00:00:00.000Z"]), len(content))

    assert found["day"].to_list() == [None]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_compressed_text_is_profiled_all_over(encoding: str) -> None:
    lines = [f"{row},{row * 10},{'first' if row < 150_000 else 'second'}" for row in range(300_000)]
    text = "\n".join(["row,size,half", *lines]).encode(encoding)
    starts = range(HEAD, len(text) - CHUNK, 2 * (len(text) // 40))
    body = text[:HEAD] + b"".join(text[start : start + CHUNK] for start in starts)

    found = infer_schema("a.csv.gz", read_unpacked("a.csv.gz", body, complete=False))

    assert (found.file, found.spread, found.seen) == ("a.csv.gz", True, 2_000)
    assert {column.name: column.kind for column in found.columns}["half"] == "category"
    assert found.columns[1].high > 2_500_000
    assert found.data == ({} if encoding == "utf-8" else {"encoding": "utf-16"})


def test_errors_name_the_compressed_file() -> None:
    with pytest.raises(DataError) as raised:
        read_unpacked("a.csv.gz", b"a,b\n1,2\n1,2,3\n", complete=True)

    assert [(issue.file, issue.line) for issue in raised.value.issues] == [("a.csv.gz", 3)]


def test_an_archive_of_a_workbook_is_refused() -> None:
    with pytest.raises(DataError, match="a workbook or another archive"):
        read_unpacked("a.zip", b"PK\x03\x04" + bytes(60), complete=True)


def test_a_footer_of_many_columns_and_groups_is_read_whole(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    frame = pl.DataFrame({f"column {number}": range(40) for number in range(500)})
    frame.write_parquet(file, row_group_size=1)
    content = file.read_bytes()
    reads: list[tuple[int, int]] = []

    def read(start: int, limit: int) -> bytes:
        reads.append((start, limit))
        return content[start : start + limit]

    tail = read_footer(len(content), read)

    assert len(reads) == 2
    assert len(content) > len(tail) > USUAL
    assert infer_parquet_schema(file.name, tail, len(content))["rows"] == 40
    assert read_footer(3, lambda start, limit: b"abc"[start : start + limit]) == b"abc"
