"""New data is read as it is: faults are findings, not errors."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from dmls_core.data.table.table import Table, TableColumn
from dmls_core.errors import DataError
from dmls_core.monitoring.drift import compare
from dmls_core.monitoring.new_data import read_new_data
from dmls_core.monitoring.profile import ROWS, Profile, profile_table

HEADER = "size,color,flag,kind\n"


@pytest.fixture(scope="module")
def baseline() -> Profile:
    draw = np.random.default_rng(0)
    matrix = np.stack(
        [draw.normal(size=500), draw.integers(0, 2, 500), draw.integers(0, 2, 500)], axis=1
    ).astype(np.float32)
    columns = (TableColumn("size"), TableColumn("color", ("blue", "1")), TableColumn("flag"))
    return profile_table(Table(columns, matrix, "kind", draw.integers(0, 2, 500), ("no", "yes")))


def read(baseline, tmp_path, text: str):
    path = tmp_path / "new.csv"
    path.write_text(text)
    found = read_new_data([path], baseline)
    return found, {column.name: column for column in found.values}


def test_values_become_numbers_and_categories_as_in_training(baseline, tmp_path):
    found, columns = read(baseline, tmp_path, HEADER + "1.5,blue,True,yes\n,1.0,false,no\n2,red,1,maybe\n\n")
    assert found.rows == 3  # the blank line is none
    assert np.array_equal(columns["size"].data, [1.5, np.nan, 2.0], equal_nan=True)
    assert columns["flag"].data.tolist() == [1.0, 0.0, 1.0]
    assert columns["color"].texts == ("1", "blue", "red")
    assert [columns["color"].texts[int(code)] for code in columns["color"].data] == ["blue", "1", "red"]
    assert columns["kind"].role == "target"


def test_texts_that_are_not_missing_for_the_model_are_categories(baseline, tmp_path):
    path = tmp_path / "new.csv"
    path.write_text(HEADER + "None,None,0,no\n1,blue,0,None\n2,NA,0,yes\n")
    found = read_new_data([path], baseline, not_missing=["None"])
    columns = {column.name: column for column in found.values}
    assert np.isnan(columns["size"].data).tolist() == [True, False, False]
    assert (columns["color"].texts, columns["kind"].texts) == (("None", "blue"), ("None", "no", "yes"))
    assert np.isnan(columns["color"].data).tolist() == [False, False, True]


def test_a_text_in_a_column_of_numbers_counts_as_missing(baseline, tmp_path):
    _, columns = read(baseline, tmp_path, HEADER + "1,blue,0,no\noops,blue,0,no\nNA,blue,0,no\n")
    assert np.array_equal(columns["size"].data, [1.0, np.nan, np.nan], equal_nan=True)


def test_missing_and_additional_columns_are_no_error(baseline, tmp_path):
    found, columns = read(baseline, tmp_path, "other,size\n" + "x,1\n" * 5)
    assert found.rows == 5
    assert set(columns) == {"size"}
    assert found.table(["size"]).feature_names == ("size",)


@pytest.mark.parametrize("header", ["a,b\n1,2\n", "kind\nyes\n"])
def test_data_without_features_is_rejected(baseline, tmp_path, header):
    with pytest.raises(DataError, match="contains no feature of the model"):
        read(baseline, tmp_path, header)


def test_a_repeated_column_is_rejected(baseline, tmp_path):
    with pytest.raises(DataError, match="more than once"):
        read(baseline, tmp_path, "size,size\n1,2\n")


def test_parquet_columns_may_have_any_type(baseline, tmp_path):
    frame = pl.DataFrame(
        {
            "size": ["1.5", "x", None],
            "color": [1, 2, None],
            "flag": [True, None, False],
            "kind": pl.Series(["yes", "no", "no"], dtype=pl.Categorical),
            "request_id": ["a", "b", "c"],
        }
    )
    frame.write_parquet(tmp_path / "new.parquet")
    found = read_new_data([tmp_path / "new.parquet"], baseline)
    columns = {column.name: column for column in found.values}
    assert np.array_equal(columns["size"].data, [1.5, np.nan, np.nan], equal_nan=True)
    assert columns["color"].texts == ("1", "2")
    assert np.array_equal(columns["flag"].data, [1.0, np.nan, 0.0], equal_nan=True)


def test_rows_without_a_target_are_not_missing_values(baseline, tmp_path):
    text = HEADER + "1,blue,0,no\n" * 10 + "1,blue,0,\n" * 190
    found, columns = read(baseline, tmp_path, text)
    assert found.rows == len(columns["size"].data) == 200
    assert len(columns["kind"].data) == 10
    drift = compare(baseline, {("target", "kind"): columns["kind"]}, found.rows, 0.2)
    assert {column.role: column.verdict for column in drift.columns}["target"] == "too few rows"


def test_a_column_of_lists_is_absent(baseline, tmp_path):
    pl.DataFrame({"size": [1.0], "flag": [[1, 2]]}).write_parquet(tmp_path / "new.parquet")
    found = read_new_data([tmp_path / "new.parquet"], baseline)
    assert [column.name for column in found.values] == ["size"]


def test_files_with_different_columns_share_the_common_ones(baseline, tmp_path):
    (tmp_path / "a.csv").write_text("size,color\n1,blue\n")
    (tmp_path / "b.csv").write_text("size\n2\n")
    found = read_new_data([tmp_path / "a.csv", tmp_path / "b.csv"], baseline)
    assert found.rows == 2
    assert [column.name for column in found.values] == ["size"]


def test_the_training_data_itself_has_not_drifted(baseline, tmp_path):
    draw = np.random.default_rng(0)
    rows = zip(draw.normal(size=500), draw.integers(0, 2, 500), draw.integers(0, 2, 500), strict=True)
    text = HEADER + "".join(f"{size},{('blue', '1')[color]},{flag},no\n" for size, color, flag in rows)
    found, columns = read(baseline, tmp_path, text)
    features = {("feature", name): columns[name] for name in ("size", "color", "flag")}
    assert compare(baseline, features, found.rows, 0.2).drifted == ()


def test_a_million_rows_leave_a_small_baseline():
    draw = np.random.default_rng(0)
    matrix = draw.random((1_000_000, 4), dtype=np.float32)
    matrix[:, 3] = draw.integers(0, 5000, len(matrix))
    columns = (
        *map(TableColumn, "abc"),
        TableColumn("d", tuple(f"{n:05d}" + "x" * 3000 for n in range(5000))),
    )
    profile = profile_table(Table(columns, matrix, "y", draw.random(len(matrix))))
    import json

    assert len(json.dumps(profile.as_json())) < 4_000
    assert profile.rows == 1_000_000
    assert {column.rows for column in profile.columns} == {ROWS}
