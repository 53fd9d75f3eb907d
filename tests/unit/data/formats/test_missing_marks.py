"""``[data] missing`` and ``not_missing``: in files, found in a sample, and in predictions."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import polars as pl
import pytest

from dmls_core.data.encoder import (
    MISSING,
    CategoryFeature,
    DateFeature,
    Encoder,
    Feature,
    NumberFeature,
    Target,
)
from dmls_core.data.formats.conversion import convert
from dmls_core.data.formats.data_files import ColumnIssue
from dmls_core.data.formats.missing_marks import find_marks, hint_on
from dmls_core.data.snapshot import write_snapshot
from dmls_core.data.table.columns import read_feature
from dmls_core.data.table.reader import read_table
from dmls_core.data.table.stored import store_table
from dmls_core.data.table.table import encode_table, fit_encoder
from dmls_core.errors import DataError, SpecError
from dmls_core.intake.column_check import examine
from dmls_core.intake.schema_inference import infer_file_schema
from dmls_core.intake.schema_inference.draft import DATE
from dmls_core.models import load_spec
from dmls_core.serving.triton.model_config import table_config
from dmls_core.serving.triton.shared_process import Slot, table_front
from dmls_core.serving.triton.tensors import table_request, table_tensors
from dmls_core.settings import DataLimits
from dmls_core.spec import Columns
from dmls_core.spec.data_table import Data
from dmls_core.spec.toml_io import toml_text
from dmls_core.spec.values import MissingOrValue

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


GRADES = ["None", "Mild", "Severe", "NA", ""]
PEOPLE = [
    {"age": "NA" if at == 7 else str(at), "country": ("NA", "DE", "AT")[at % 3], "grade": GRADES[at % 5]}
    for at in range(60)
]
KEPT = ("None", "NA")


def write_people(path: Path) -> Path:
    if path.suffix == ".parquet":
        pl.DataFrame(PEOPLE).write_parquet(path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in PEOPLE))
    else:
        pl.DataFrame(PEOPLE).write_csv(path)
    return path


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
@pytest.mark.parametrize("stored", [False, True])
def test_texts_that_are_not_missing_are_categories_and_classes(
    tmp_path: Path, name: str, stored: bool
) -> None:
    """The number that is ``NA`` stays missing, and makes a reader of CSV start again."""
    found = convert(write_people(tmp_path / name), Data(not_missing=KEPT), tmp_path / "out")
    columns, task = Columns(target="grade"), "classification"
    if stored:
        table = store_table([found], columns, task, tmp_path / "stored", not_missing=KEPT)
    else:
        table = read_table([found], columns, task, not_missing=KEPT)
    assert table.labels == ("Mild", "NA", "None", "Severe")
    assert [column.categories for column in table.columns] == [None, ("AT", "DE", "NA")]
    assert np.isnan(table.matrix).sum(axis=0).tolist() == [1, 0]
    assert table.warnings == ("12 of 60 rows have no target and were left out",)
    plain = read_table([found], columns, task)
    assert (plain.labels, plain.columns[1].categories) == (("Mild", "Severe"), ("AT", "DE"))
    said = "(12 say 'None', 12 say 'NA')"
    assert plain.warnings == (f"36 of 60 rows have no target and were left out {said}",)


@pytest.mark.parametrize(
    ("texts", "categories"),
    [
        (["1", "2", "NA"], None),  # a number
        (["1", "NA", "x"], ("1", "NA", "x")),
        (["true", "false", "NA"], ("NA", "false", "true")),
        (["NA", "NA", ""], ("NA",)),
    ],
)
def test_among_numbers_they_are_missing(texts: list[str], categories: tuple[str, ...] | None) -> None:
    feature = read_feature(pl.Series("a", texts), DataLimits(), categorical=False, not_missing=["NA"])
    assert not isinstance(feature, ColumnIssue)
    assert feature[0].categories == categories


def test_an_encoder_has_them_only_if_the_spec_does() -> None:
    rows = {"age": ["1", "NA"], "country": ["NA", "None"]}
    feature = CategoryFeature("country", ("AT", "NA"), 9.0, not_missing=("NA",))
    encoder = Encoder((NumberFeature("age"), feature), Target("grade"))
    np.testing.assert_array_equal(encoder.transform(rows), [[1.0, 1.0], [math.nan, 9.0]])
    assert encoder.as_json()["schema"] == 5
    assert Encoder.from_json(json.loads(json.dumps(encoder.as_json()))) == encoder
    plain = Encoder((NumberFeature("age"), replace(feature, not_missing=())), Target("grade"))
    np.testing.assert_array_equal(plain.transform(rows), [[1.0, 9.0], [math.nan, 9.0]])
    assert plain.as_json()["schema"] == 1
    # Clients leave it to the endpoint to say what is missing.
    assert table_tensors(encoder, rows)["country"][:, 0].tolist() == ["NA", "None"]
    assert '"data": ["NA", ""]' in table_request(encoder, rows)


def test_a_fitted_encoder_answers_as_it_was_trained(tmp_path: Path) -> None:
    path = write_people(tmp_path / "a.csv")
    table = read_table([path], Columns(target="grade"), "classification", not_missing=KEPT)
    rows = np.arange(table.n_rows)
    encoder = fit_encoder(table, rows, fill_missing=True, not_missing=KEPT)
    np.testing.assert_array_equal(encoder.transform(table.raw(rows)), encode_table(encoder, table, rows))
    assert encoder.not_missing == set(KEPT)


def test_a_snapshot_keeps_them(tmp_path: Path) -> None:
    path, target = write_people(tmp_path / "a.csv"), tmp_path / "snapshot.parquet"
    (tmp_path / "b.csv").write_text("age,country,grade\n1,NA,None\n")
    paths = [str(path), str(tmp_path / "b.csv")]
    write_snapshot(paths, [{}, {}], {"not_missing": list(KEPT)}, [], str(target), ["a.csv", "b.csv"])
    table = read_table([target], Columns(target="grade"), "classification", not_missing=KEPT)
    assert (table.labels, len(table.target)) == (("Mild", "NA", "None", "Severe"), 49)


@pytest.mark.parametrize(
    ("columns", "texts"),
    [
        ({"grade": ["None", "Mild", "Severe"]}, '"None"'),
        ({"country": ["NA", "DE", "US"]}, '"NA"'),
        ({"country": ["NA", "DE", "US"], "grade": ["None", "Mild", "Severe"]}, '"NA", "None"'),
        ({"city": ["NA", "Paris", "Rome"]}, ""),
        ({"colour": ["None", "light red", "#f00"]}, ""),
        ({"answer": ["null", "yes", "no"], "a": ["1", "2", "3"]}, ""),
        ({"y": ["null", "u", "v"]}, '"null"'),  # a frequent class
        ({"y": ["<NA>", "u", "v"]}, ""),
        ({"y": ["NaN", "u", "v"]}, ""),
        ({"a": ["1", "2", "NA"]}, None),
    ],
)
def test_texts_that_look_like_values_are_asked_about(
    tmp_path: Path, columns: dict[str, list[str]], texts: str | None
) -> None:
    length = 60
    table = {"a": list(range(0, 3 * length, 3)), "y": ["u", "v"] * (length // 2)}
    table |= {name: values * (length // 3) for name, values in columns.items()}
    path = tmp_path / "a.csv"
    pl.DataFrame(table).write_csv(path)
    notes = [note for note in infer_file_schema(path, "y")["remarks"] if "as missing values" in note]
    expected = "" if not texts else f"set [data] not_missing = [{texts}]."
    assert len(notes) == (texts is not None)
    for note in notes:
        assert note.endswith(expected)
        assert ("not_missing" in note) == bool(expected)
    (spec := tmp_path / "spec.toml").write_text(toml_text(infer_file_schema(path, "y")["document"]))
    found = examine([str(path)], load_spec(spec.read_bytes(), "spec.toml").as_json(), "all")
    assert [note for note in found["notes"] if "as missing values" in note] == notes


@pytest.mark.parametrize(
    ("content", "asked"),
    [
        ('"city","a"\n"Rome",1\n"Bonn",2\n"NA",2\nNA,3\n', True),  # R quotes texts, but no missing value
        ('city,a\nRome,1\nBonn,2\n"NA",2\n', True),
        ('"city","a"\n"Rome","1"\n"Bonn","2"\n"NA","2"\n', False),  # all of it is quoted
        ("city,a\nRome,1\nBonn,2\nNA,2\n", False),
        ('city,a\n"Rome, NA",1\nBonn,2\nNA,2\n', False),
    ],
)
def test_a_quoted_text_looks_like_a_value(tmp_path: Path, content: str, asked: bool) -> None:
    header, _, rows = content.partition("\n")
    path = tmp_path / "a.csv"
    path.write_text(f"{header}\n{rows * 20}")
    (note,) = (note for note in infer_file_schema(path, "a")["remarks"] if "as missing values" in note)
    assert ("If 'NA' is a value there" in note) is asked


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ('not_missing = ["-"]', 'must be one of "NA", "N/A", "n/a", "NULL", "null", "None"'),
        ('not_missing = ["NA"]\nmissing = ["NA"]', r"is also in \[data\] missing"),
    ],
)
def test_what_cannot_be_kept(keys: str, message: str) -> None:
    text = f'model = "random-forest-classifier"\n[columns]\ntarget = "y"\n[data]\n{keys}\n'
    with pytest.raises(SpecError, match=message):
        load_spec(text.encode(), "spec.toml")


def test_the_texts_of_the_key_are_read_as_missing_without_it() -> None:
    assert set(get_args(MissingOrValue)) < MISSING
