"""cuDF reads what Polars reads, or leaves it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from dmls_core.data.table.reader import read_table
from dmls_core.data.table.table import encode_table, fit_encoder
from dmls_core.errors import DataError
from dmls_core.models import engine_class
from dmls_core.spec import Columns

READER = engine_class("gpu", "random-forest-classifier").reader()
COLUMNS = Columns(target="kind", categorical=("code",))


def frame(rows: int = 20_000) -> pl.DataFrame:
    draw = np.random.default_rng(0)
    return pl.DataFrame(
        {
            "plain": draw.normal(size=rows),
            "tiny": draw.normal(size=rows) * 1e-30,
            "whole": draw.integers(-1000, 1000, rows),
            "gaps": [None if value > 1 else value for value in draw.normal(size=rows).tolist()],
            "code": draw.integers(0, 30, rows),
            "word": draw.choice(["red", "green, dark", 'blue "7"', "é", " red"], rows),
            "kind": draw.choice(["no", "yes", "maybe"], rows),
        }
    )


@pytest.mark.parametrize("data_format", ["csv", "parquet"])
def test_cudf_and_polars_give_the_same_table(data_format: str, tmp_path: Path):
    path = tmp_path / f"data.{data_format}"
    getattr(frame(), f"write_{data_format}")(path)
    reader = READER
    assert reader is not None

    found = read_table([path], COLUMNS, "classification", reader=reader)
    reference = read_table([path], COLUMNS, "classification")

    assert found.columns == reference.columns
    assert found.labels == reference.labels
    assert (found.target == reference.target).all()
    # Polars reads the shortest text of a double as the nearest float32; cuDF may be one digit off.
    assert np.array_equal(np.isnan(found.matrix), np.isnan(reference.matrix))
    np.testing.assert_array_almost_equal_nulp(np.nan_to_num(found.matrix), np.nan_to_num(reference.matrix), 1)
    rows = np.arange(0, 20_000, 2)
    one, other = (fit_encoder(table, rows, fill_missing=True) for table in (found, reference))
    assert one.feature_names == other.feature_names
    np.testing.assert_allclose(
        encode_table(one, found, rows), encode_table(other, reference, rows), rtol=1e-6
    )


def test_cudf_really_read_it(tmp_path: Path):
    path = tmp_path / "data.csv"
    path.write_text("a,b,c\n1,2.5,x\n3,,y\n5,6,z\n")

    table = READER.csv(path, {0: "float32", 1: "float32", 2: "str"}, header_lines=1, columns=3)

    # The column with a gap is left to Polars.
    assert table.column_names == ["0", "2"]
    assert table.column("0").to_pylist() == [1, 3, 5]
    assert table.column("2").to_pylist() == ["x", "y", "z"]


@pytest.mark.parametrize(
    "body", ["1,2,x\n3,4,y,z\n", "1,2,x\n3,4\n", "1,2,x\n\n3,4,y\n", "one,2,x\n3,4,y\n", "1,2,\n3,4,y\n"]
)
def test_what_is_not_clean_is_left_to_polars(body: str, tmp_path: Path):
    path = tmp_path / "data.csv"
    path.write_text("a,b,c\n" + body * 20)

    def outcome(reader) -> object:
        try:
            table = read_table([path], Columns(target="c"), "classification", reader=reader)
        except DataError as error:
            return [issue.as_json() for issue in error.issues]
        return table.matrix.tolist(), table.target.tolist(), table.labels

    assert outcome(READER) == outcome(None)
