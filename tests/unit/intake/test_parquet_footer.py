"""Of a Parquet file that is too large to be read, the end has the columns."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from dmls_core.data.formats.parquet_footer import USUAL, read_footer
from dmls_core.intake.schema_inference import infer_footer_schema


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
    assert infer_footer_schema(file.name, tail, len(content))["rows"] == 40
    assert read_footer(3, lambda start, limit: b"abc"[start : start + limit]) == b"abc"
