"""The schema of a file in the store comes from rows all over a part of it."""

from __future__ import annotations

import gzip
import io
import random
import zipfile

import polars as pl
import pytest

from dmls_core.errors import DataError
from dmls_core.spec.data_table import Data
from dmls_core.store import open_store
from dmls_core.web.services import stored_schema


@pytest.fixture
def store(tmp_path, monkeypatch):
    store = open_store(str(tmp_path / "store"))
    monkeypatch.setattr(stored_schema, "open_store", lambda: store)
    return store


def test_a_compressed_text_is_read_up_to_a_limit(store, monkeypatch):
    draw = random.Random(1)
    rows = "".join(f"{at},{draw.random()},{draw.choice('uv')}\n" for at in range(80_000))
    store.put("incoming/lab/iris/a.csv.gz", gzip.compress(f"row,x,y\n{rows}".encode(), 1))

    found = stored_schema.infer_stored_schema("lab", "iris", "a.csv.gz")
    assert (found.spread, found.seen, found.extent) == (True, 2_000, "lines 1 to 80,001")
    assert found.columns[0]["high"] > 70_000

    monkeypatch.setattr(stored_schema, "PACKED", 1 << 19)
    part = stored_schema.infer_stored_schema("lab", "iris", "a.csv.gz")
    assert part.extent == "the first 0.5 MiB of the file"
    assert 25_000 < part.columns[0]["high"] < 76_000


def test_a_part_of_an_archive_has_its_first_rows(store, monkeypatch):
    draw, content = random.Random(1), io.BytesIO()
    rows = "".join(f"{at},{draw.random()},{draw.choice('uv')}\n" for at in range(80_000))
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.csv", f"row,x,y\n{rows}")
    store.put("incoming/lab/iris/a.zip", content.getvalue())
    monkeypatch.setattr(stored_schema, "PACKED", 1 << 19)
    found = stored_schema.infer_stored_schema("lab", "iris", "a.zip")
    assert (found.spread, found.rows) == (False, None)
    assert [column["name"] for column in found.columns] == ["row", "x", "y"]


def test_of_large_parquet_the_columns_are_known(store, tmp_path, monkeypatch):
    draw = random.Random(1)
    pl.DataFrame({"x": [draw.random() for _ in range(200_000)] * 6, "y": [0, 1] * 600_000}).write_parquet(
        tmp_path / "a.parquet", compression="uncompressed"
    )
    store.upload("incoming/lab/iris/a.parquet", tmp_path / "a.parquet")
    found = stored_schema.infer_stored_schema("lab", "iris", "a.parquet")
    assert (found.rows, [column["name"] for column in found.columns]) == (1_200_000, ["x", "y"])
    marked = stored_schema.infer_stored_schema("lab", "iris", "a.parquet", Data(missing=("-",)))
    assert marked.data == marked.document["data"] == {"missing": ["-"]}, "the form keeps what the user wrote"
    monkeypatch.setattr(stored_schema, "COPIED", 8 << 20)
    end = stored_schema.infer_stored_schema("lab", "iris", "a.parquet")
    assert (end.rows, end.seen) == (1_200_000, 0)
    marked = stored_schema.infer_stored_schema("lab", "iris", "a.parquet", Data(missing=("-",)))
    assert marked.data == marked.document["data"] == {"missing": ["-"]}, "the form keeps what the user wrote"
    store.put("incoming/lab/iris/b.xlsx", bytes(9 << 20))
    with pytest.raises(DataError, match="too large"):
        stored_schema.infer_stored_schema("lab", "iris", "b.xlsx")
