"""``[data] missing``: marks of missing values in files, found in a sample, and in predictions."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from dmls_core.data.encoder import (
    CategoryFeature,
    DateFeature,
    Encoder,
    Feature,
    NumberFeature,
    Target,
)
from dmls_core.data.formats.conversion import convert
from dmls_core.data.formats.missing_marks import find_marks, hint_on
from dmls_core.data.snapshot import write_snapshot
from dmls_core.data.table.reader import read_table
from dmls_core.data.table.stored import store_table
from dmls_core.data.table.table import fit_encoder
from dmls_core.errors import DataError, SpecError
from dmls_core.intake.schema_inference import infer_file_schema
from dmls_core.intake.schema_inference.draft import DATE
from dmls_core.models import load_spec
from dmls_core.serving.triton.model_config import table_config
from dmls_core.serving.triton.shared_process import Slot, table_front
from dmls_core.serving.triton.tensors import table_tensors
from dmls_core.spec import Columns
from dmls_core.spec.data_table import Data

TEXT = "price,size,y\n1.5,-,u\n-,big,v\n2.5,small,u\n ? ,big,v\n"
ROWS: list[dict[str, Any]] = [
    {"price": "1.5", "size": "-", "y": "u"},
    {"price": "-", "size": "big", "y": "v"},
    {"price": "2.5", "size": "small", "y": "u"},
    {"price": " ? ", "size": "big", "y": "v"},
]
MARKS = ("-", "?")
MATRIX = [[1.5, math.nan], [math.nan, 0.0], [2.5, 1.0], [math.nan, 0.0]]


def write(folder: Path, name: str) -> Path:
    path = folder / name
    if name.endswith(".parquet"):
        pl.DataFrame(ROWS).with_columns(pl.col("size").cast(pl.Categorical)).write_parquet(path)
    elif name.endswith(".jsonl"):
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    else:
        path.write_text(TEXT)
    return path


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
@pytest.mark.parametrize("stored", [False, True])
def test_every_reader_removes_the_marks(tmp_path: Path, name: str, stored: bool) -> None:
    found = convert(write(tmp_path, name), Data(missing=MARKS), tmp_path / "out")
    columns = Columns(target="y")
    if stored:
        table = store_table([found], columns, "classification", tmp_path / "stored")
    else:
        table = read_table([found], columns, "classification")
    np.testing.assert_array_equal(table.matrix, MATRIX)


def test_snapshots_of_sources_remove_them(tmp_path: Path) -> None:
    path, target = write(tmp_path, "a.csv"), tmp_path / "snapshot.parquet"
    write_snapshot([str(path)], [{}], {"missing": list(MARKS)}, [], str(target), [path.name])
    assert pl.read_parquet(target)["price"].to_list() == [1.5, None, 2.5, None]


def test_without_the_key_the_refusal_names_it(tmp_path: Path) -> None:
    rows = "".join(f"{at},u\n" for at in range(5))
    path = tmp_path / "a.csv"
    path.write_text(f"price,y\n{rows}-,v\n")
    with pytest.raises(DataError, match=r'set \[data\] missing = \["-"\]'):
        read_table([path], Columns(target="y"), "classification")


@pytest.mark.parametrize(
    ("columns", "marks"),
    [
        ({"a": ["1", "2", "-", "3"]}, ("-",)),
        ({"a": ["1", "2", "n.a.", "?", "?"]}, ("?", "n.a.")),
        ({"a": ["2026-01-31", "2026-02-01", "--"]}, ("--",)),
        ({"a": ["1", "2", "", "NA"]}, ()),  # always missing
        ({"a": ["1", "2", "T"]}, ()),  # not usual: a trace of rain
        ({"a": ["1", "-", "b", "c"]}, ()),  # a column of texts
        ({"a": ["1", "2", "-"], "sign": ["+", "-", "+"]}, ()),  # a category
        ({"a": ["1", "2", "?"], "work": ["private", "?", "public"]}, ("?",)),
        ({"a": ["1", "2", "unknown"], "state": ["open", "unknown", "closed"]}, ()),
        ({"a": [1.0, 2.0]}, ()),
        ({"a": ["1", "NAN", "-", "Nan", "inf"]}, ("-",)),  # numbers to every reader
    ],
)
def test_marks_of_a_sample(columns: dict[str, list[Any]], marks: tuple[str, ...]) -> None:
    assert find_marks(columns.values(), DATE) == marks


def test_a_sample_has_no_more_marks_than_a_spec() -> None:
    columns = [["1", "2", "3", "-" * at, "." * at, "?" * at] for at in range(1, 9)]
    assert len(Data(missing=find_marks(columns, DATE)).missing) == 20


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet", "a.tsv"])
def test_the_drafted_spec_has_them(tmp_path: Path, name: str) -> None:
    rows = [{"price": "-" if at % 7 == 0 else str(at / 2), "y": "uv"[at % 2]} for at in range(60)]
    path = tmp_path / name
    if name == "a.parquet":
        pl.DataFrame(rows).write_parquet(path)
    elif name == "a.jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pl.DataFrame(rows).write_csv(path, separator="\t" if name == "a.tsv" else ",")
    found = infer_file_schema(path, "y")
    assert found["document"]["data"]["missing"] == ["-"]
    (price,) = (column for column in found["columns"] if column["name"] == "price")
    assert (price["kind"], price["missing"]) == ("number", 9)
    assert any("'-' in price (9)" in note for note in found["notes"])


def test_usual_marks_only_are_proposed() -> None:
    assert hint_on(["-", "n.a."]).count('missing = ["-", "n.a."],') == 1
    assert hint_on(["-", " - ", "- "]).count('missing = ["-"],') == 1
    assert hint_on(["\\N"]).count(r'missing = ["\\N"],') == 1
    assert not hint_on(["12 kg"])


FEATURES: tuple[Feature, ...] = (
    NumberFeature("price", 7.0, MARKS),
    CategoryFeature("size", ("big", "small"), 9.0, -1.0, MARKS),
    DateFeature("day", fill=(1.0, 2.0, 3.0, 4.0), marks=MARKS),
)


def test_predictions_take_them() -> None:
    encoder = Encoder(FEATURES, Target("y"))
    columns = {"price": ["-", "1", " ? "], "size": ["?", "small", "-"], "day": ["-", "1970-01-02", None]}
    missing = [7.0, 9.0, 1.0, 2.0, 3.0, 4.0]
    expected = [missing, [1.0, 1.0, 1.0, 1.0, 2.0, 4.0], missing]
    np.testing.assert_array_equal(encoder.transform(columns), expected)
    with pytest.raises(ValueError, match="'x' is not a number"):
        encoder.transform(columns | {"price": ["x", "1", "1"]})


def test_the_table_endpoint_and_its_clients_take_them() -> None:
    encoder = Encoder(FEATURES, Target("y"))
    rows = {"price": ["-", "1"], "size": ["?", "big"], "day": ["1970-01-02", "-"]}
    inputs = table_tensors(encoder, rows)
    np.testing.assert_array_equal(inputs["price"][:, 0], [np.nan, 1.0])
    assert inputs["size"][:, 0].tolist() == ["?", "big"]  # the endpoint's encoder knows the mark
    plain = Encoder((NumberFeature("a"),), Target("y"))
    for endpoint in (
        lambda own: table_config("lab.iris", {1: own}, version=1, folder=2),
        lambda own: table_front("lab.iris", own, 1, Slot(2, 1)),
    ):
        assert r'key: "missing" value: { string_value: "[\042-\042, \042?\042]" }' in endpoint(encoder)
        assert '"missing"' not in endpoint(plain)


def test_the_schema_shows_marks_and_earlier_ones_are_read() -> None:
    encoder = Encoder(FEATURES, Target("y"))
    assert encoder.as_json()["schema"] == 4
    assert Encoder.from_json(json.loads(json.dumps(encoder.as_json()))) == encoder
    plain = Encoder((NumberFeature("a"), CategoryFeature("b", ("u",), 1.0)), Target("y"))
    assert plain.as_json()["schema"] == 1
    assert "marks" not in json.dumps(plain.as_json())
    assert Encoder.from_json(plain.as_json()) == plain


def test_a_fitted_encoder_has_them(tmp_path: Path) -> None:
    found = convert(write(tmp_path, "a.csv"), Data(missing=MARKS), tmp_path / "out")
    table = read_table([found], Columns(target="y"), "classification")
    encoder = fit_encoder(table, np.arange(4), fill_missing=True, marks=MARKS)
    assert [feature.marks for feature in encoder.features] == [MARKS, MARKS]


@pytest.mark.parametrize("mark", ["1", "-9.5", "nan", "true", " - ", ""])
def test_what_is_no_mark(mark: str) -> None:
    text = f'model = "random-forest-classifier"\n[columns]\ntarget = "y"\n[data]\nmissing = ["{mark}"]\n'
    with pytest.raises(SpecError, match="missing"):
        load_spec(text.encode(), "spec.toml")


def test_a_spec_without_marks_keeps_its_hash() -> None:
    text = 'model = "random-forest-classifier"\nn_trials = 2\n[columns]\ntarget = "y"\n'
    plain = load_spec(text.encode(), "spec.toml")
    assert "missing" not in plain.as_json()["data"]
    marked = load_spec((text + '[data]\nmissing = ["-"]\n').encode(), "spec.toml")
    assert marked.as_json()["data"]["missing"] == ["-"]
    assert marked.sha256 != plain.sha256
