"""Schema inference reads rows from all over a file: the beginning of a sorted one misleads."""

from __future__ import annotations

import io
from pathlib import Path

import polars as pl
import pytest

from dmls_core.intake.schema_inference import infer_file_schema, infer_schema, read_sample, sample_file


def sorted_rows(rows: int) -> list[str]:
    return [f"{row},{row * 10},{'first' if row < rows / 2 else 'second'}" for row in range(rows)]


@pytest.mark.parametrize("rows", [9_000, 400_000], ids=["read whole", "large"])
def test_a_sorted_text_is_sampled_all_over(tmp_path: Path, rows: int) -> None:
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["row,size,half", *sorted_rows(rows)]) + "\n")

    found = infer_file_schema(path)

    assert (found["spread"], found["seen"]) == (True, 2_000)
    row, size, half = found["columns"]
    assert (row["kind"], half["distinct"]) == ("id", 2)
    assert size["high"] > 9.9 * rows
    assert found["preview"][:2] == (("0", "0", "first"), ("1", "10", "first"))
    assert found["rows"] == (rows if rows < 10_000 else None)


def test_a_sorted_parquet_file_is_sampled_all_over() -> None:
    frame = pl.select(row=pl.int_range(50_000), half=pl.int_range(50_000) // 25_000)
    frame = frame.with_columns(size=pl.col("row") * 10)

    content = io.BytesIO()
    frame.write_parquet(content)
    found = infer_schema("a.parquet", read_sample("a.parquet", content.getvalue(), complete=True))

    assert (found.seen, found.rows) == (2_000, 50_000)
    assert {column.name: column.kind for column in found.columns} == {
        "row": "id",
        "half": "code",
        "size": "number",
    }
    assert found.columns[0].high == pytest.approx(50_000, rel=0.1)


def test_a_piece_that_begins_within_quotes_does_not_spoil_the_sample(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,note,y\n" + '1,"two\nlines, or more",u\n2,"x",v\n' * 120_000)

    assert infer_file_schema(path)["target"] == "y"


def test_a_large_text_in_utf_16_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(("\n".join(["row,size,half", *sorted_rows(200_000)]) + "\n").encode("utf-16"))

    found = sample_file(path)

    assert (found.spread, found.data) == (False, {"encoding": "utf-16"})
