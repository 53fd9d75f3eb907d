"""Files of a store, scored by a model whose answers are known."""

from __future__ import annotations

import csv
import io
import json

import polars as pl
import pytest

from dmls_core.errors import DataError, NotFoundError, ServingError
from dmls_core.serving import Predictor
from dmls_core.serving.predict.batch_scoring import FileScoring, find_unscored, list_files
from dmls_core.serving.predict.scoring_record import read_record
from dmls_core.store import open_store
from tests.support.model_folder import LABELS, toy_model_folder
from tests.unit.serving.predict.test_predictor import NAME, Sums

JOB = ("lab", "iris")


@pytest.fixture
def store(root):
    return open_store(str(root))


@pytest.fixture
def predictor(deployment, repository, tmp_path):
    deployment.deploy(toy_model_folder(tmp_path / "run"))
    return Predictor(repository, Sums(), NAME)


@pytest.fixture
def score(store, predictor):
    def _score(file, content=None, options=None, read_table=None):
        if content is not None:
            store.put(f"scoring/lab/iris/{file}", content)
        return FileScoring(store, connect, *JOB, file, options or {}).run(read_table)

    def connect(*, strict):
        predictor._strict = strict
        return predictor

    return _score


def rows_of(store, key):
    return list(csv.reader(io.StringIO(store.get(key).decode())))


def test_a_csv_gets_version_and_predictions_next_to_its_columns(score, store, predictor):
    done = score("may.csv", b"id,length,width\n007,1,0\n008,,2\n")
    assert (done.state, done.result, done.rows, done.version) == ("scored", "scored/lab/iris/may.csv", 2, 1)
    probabilities = [f"probability_{label}" for label in LABELS]
    assert rows_of(store, done.result) == [
        ["id", "length", "width", "model_version", "prediction", *probabilities],
        ["007", "1", "0", "1", "versicolor", "0.0", "1.0", "0.0"],
        ["008", "", "2", "1", "virginica", "0.0", "0.0", "1.0"],
    ]
    assert read_record(store, *JOB, "may.csv").message == "2 rows scored by version 1"


def test_the_record_says_what_is_unlike_the_training(score, store):
    score("may.csv", b"length,width\n1,0\n,\n")
    message = "2 rows scored by version 1; unlike the training data: 1 row without any value"
    assert read_record(store, *JOB, "may.csv").message == message


def test_a_strict_file_with_rows_unlike_the_training_is_refused(score, store):
    unlike = r"strict/may.csv:3: row 2: all columns of the model are missing"
    with pytest.raises(DataError, match=unlike):
        score("strict/may.csv", b"id,length,width\n7,1,0\n8,,\n")
    assert read_record(store, *JOB, "strict/may.csv").state == "failed"
    assert score("strict/may.csv", b"id,length,width\n7,1,0\n").result == "scored/lab/iris/strict/may.csv"


def parquet(**columns):
    target = io.BytesIO()
    pl.DataFrame(columns).write_parquet(target)
    return target.getvalue()


def test_parquet_keeps_its_types(score, store):
    source = {"id": [2**60, 2**60 + 1, 3], "length": [1.0, None, 2.5], "width": [0, 2, 0]}
    done = score("2026/may.parquet", parquet(**source))
    found = pl.read_parquet(io.BytesIO(store.get("scored/lab/iris/2026/may.parquet")))
    assert done.rows == 3
    assert found.select(*source).equals(pl.DataFrame(source))
    assert found.columns[3:5] == ["model_version", "prediction"]
    assert found["prediction"].to_list() == ["versicolor", "virginica", "virginica"]
    assert found.schema["probability_setosa"] == pl.Float32


def test_the_options_of_the_job_apply_and_others_become_csv(score, store):
    done = score("may.tsv", b"length\twidth\n0,5\t1\n", {"delimiter": "\t", "decimal": ","})
    assert rows_of(store, "scored/lab/iris/may.tsv.csv")[1][:4] == ["0.5", "1", "1", "versicolor"]
    assert done.result.endswith("may.tsv.csv")
    score("may.jsonl", b'{"length": 1, "width": null}\n')
    assert rows_of(store, "scored/lab/iris/may.jsonl.csv")[1][3] == "versicolor"


@pytest.mark.usefixtures("feather")
def test_a_format_of_a_plug_in_is_scored_and_becomes_csv(score, store):
    table = io.BytesIO()
    pl.DataFrame({"length": [1.0, None], "width": [0, 2]}).write_ipc(table)
    done = score("may.feather", table.getvalue())
    assert done.result == "scored/lab/iris/may.feather.csv"
    assert [row[:4] for row in rows_of(store, done.result)[1:]] == [
        ["1.0", "0", "1", "versicolor"],
        ["NA", "2", "1", "virginica"],
    ]
    with pytest.raises(DataError, match=r"name it .csv, .+ \.feather, .+, or .toml for a table"):
        score("may.dat", b"")


def test_an_ending_in_capitals_is_the_same_ending(score, store):
    assert score("MAY.PARQUET", parquet(length=[1.0], width=[0])).result == "scored/lab/iris/MAY.PARQUET"
    assert score("MAY.CSV", b"length,width\n1,0\n").result == "scored/lab/iris/MAY.CSV"


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (
            "a.csv",
            b"length,width\n1,2\n1,cat\n",
            r"^a.csv:3:2: column 'width', row 2: 'cat' is not",
        ),
        (
            "a.csv",
            b"length,width\n" + b"1,2\n" * 5000 + b"x,2\n",
            r"^a.csv:5002:1: column 'length', row 5001: ",
        ),
        (
            "a.jsonl",
            b'{"length": 1, "width": 2}\n{"length": 1, "width": "x"}\n',
            r"^a.jsonl:2: column 'width', row 2: 'x' is not a number$",
        ),
        ("a.csv", b"length,width\n1,2\n1\n", r"^a.csv:3: expected 2, as the header has, found 1 fields"),
        ("a.csv", b"length\n1\n", r"^a.csv:1: expected the columns of the training, found no column 'width'"),
        ("a.csv", b"length,width,model_version\n1,2,3\n", "a column 'model_version'"),
        ("a.parquet", b"PAR1", r"^a.parquet: the file is not Parquet"),
        ("a.parquet", parquet(length=[1.0], width=["?"]), r"^a.parquet: column 'width', row 1: '\?'"),
        ("a.parquet", parquet(length=[[1.0]], width=[2]), r"^a.parquet: length: holds no single values"),
        ("a.jsonl", b"{}\n[", r"^a.jsonl:2: the line is not a JSON object"),
        ("a.dat", b"", r"^a.dat: this is not a file of rows \(name it .csv"),
        ("a.toml", b"connection = ", r"^a.toml: not TOML"),
        ("a.toml", b'connection = "a"\nsql = "b"', r"^a.toml: table: Field required.*\n.*sql: Extra inputs"),
    ],
    ids=[
        *(
            "text",
            "far",
            "json-lines",
            "ragged",
            "column",
            "taken",
            "no-parquet",
            "parquet-text",
            "nested",
            "json",
            "name",
        ),
        *("no-toml", "keys"),
    ],
)
def test_one_message_names_file_and_row_and_nothing_is_written(score, store, file, content, message):
    with pytest.raises(DataError, match=message) as error:
        score(file, content)
    record = read_record(store, *JOB, file)
    assert (record.state, record.message) == ("failed", str(error.value))
    assert record.errors[0]["file"] == file
    assert not store.head(f"scored/lab/iris/{file}")
    assert find_unscored(store, [(*JOB, file)]) == []


def test_the_same_content_is_scored_once_by_a_version(score, store, predictor):
    first = score("may.csv", b"length,width\n1,0\n")
    predictor._client.sizes.clear()
    assert score("may.csv") == read_record(store, *JOB, "may.csv")
    assert predictor._client.sizes == []
    assert score("may.csv", b"length,width\n2,0\n").content != first.content
    assert predictor._client.sizes == [1]
    predictor.version = 2
    assert score("may.csv").version == 2
    assert find_unscored(store, [(*JOB, "may.csv")]) == []
    store.put("scoring/lab/iris/may.csv", b"length,width\n2,0\n")
    assert find_unscored(store, [(*JOB, "may.csv")]) == [(*JOB, "may.csv")]
    store.delete("scored/lab/iris/may.csv")
    score("may.csv")
    assert predictor._client.sizes == [1, 1, 1]
    assert score("may.csv") == read_record(store, *JOB, "may.csv")
    assert predictor._client.sizes == [1, 1, 1]
    assert find_unscored(store, [(*JOB, "may.csv")]) == []


def test_a_killed_call_leaves_nothing_and_is_repeated(score, store, predictor, monkeypatch):
    def kill(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(predictor, "predict", kill)
        with pytest.raises(KeyboardInterrupt):
            score("may.csv", b"length,width\n1,0\n")
    assert not store.head("scored/lab/iris/may.csv")
    assert find_unscored(store, [(*JOB, "may.csv")]) == [(*JOB, "may.csv")]
    assert score("may.csv").state == "scored"


def test_a_failing_service_leaves_the_file_to_be_tried_again(score, store, predictor):
    predictor._client.gone = [1]
    with pytest.raises(ServingError):
        score("may.csv", b"length,width\n1,0\n")
    assert read_record(store, *JOB, "may.csv").state == "failed"
    assert find_unscored(store, [(*JOB, "may.csv"), (*JOB, "gone.csv")]) == [(*JOB, "may.csv")]


def test_a_damaged_record_stops_nothing(score, store):
    score("may.csv", b"length,width\n1,0\n")
    for content in (b"{", b"[]", b'{"state": "scored"}', b"\xff"):
        store.put("scored/lab/iris/may.csv.json", content)
        assert find_unscored(store, [(*JOB, "may.csv")]) == [(*JOB, "may.csv")]
    assert score("may.csv").state == "scored"


def test_a_fault_of_dmls_is_told_and_tried_again(score, store, predictor, monkeypatch):
    monkeypatch.setattr(predictor, "predict", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        score("may.csv", b"length,width\n1,0\n")
    record = read_record(store, *JOB, "may.csv")
    assert record.message == "DMLS failed on this file: ZeroDivisionError('division by zero')"
    assert find_unscored(store, [(*JOB, "may.csv")]) == [(*JOB, "may.csv")]


def test_all_rows_are_of_one_version(score, store, predictor):
    predict = predictor.predict

    def newer(*arguments):
        found = predict(*arguments)
        predictor.version = 2
        return found

    predictor.predict = newer
    with pytest.raises(ServingError, match="another version of lab.iris went live"):
        score("may.csv", b"length,width\n1,0\n")
    assert not store.head("scored/lab/iris/may.csv")


def test_a_table_is_scored_again_only_when_its_rows_change(score, store, predictor, monkeypatch):
    monkeypatch.setattr("dmls_core.serving.predict.batch_scoring.PROGRESS_SECONDS", 0)
    rows = ["length,width,id\n1,0,a\n"]

    def read_table(request, target, progress):
        assert (request.connection, request.table) == ("warehouse", "sales.orders")
        progress(5_000)
        record = json.loads(store.get("scored/lab/iris/orders.toml.json"))
        assert (record["state"], record["message"]) == ("scoring", "5,000 rows of the table are read")
        target.write_text(rows[0])

    request = b'connection = "warehouse"\ntable = "sales.orders"\n'
    done = score("orders.toml", request, read_table=read_table)
    assert rows_of(store, "scored/lab/iris/orders.toml.csv")[1][:5] == ["1", "0", "a", "1", "versicolor"]
    assert done.rows == 1
    predictor._client.sizes.clear()
    score("orders.toml", read_table=read_table)
    assert predictor._client.sizes == []
    rows[0] += "2,0,b\n"
    assert score("orders.toml", read_table=read_table).rows == 2


def test_only_visible_files_of_the_job_are_listed(score, store):
    for key in ("a.csv", "2026/b.csv", ".hidden", "_x/c.csv"):
        store.put(f"scoring/lab/iris/{key}", b"")
    store.put("scoring/lab/iris2/d.csv", b"")
    assert list_files(store, *JOB) == ["2026/b.csv", "a.csv"]
    with pytest.raises(NotFoundError, match=r"upload it to scoring/lab/iris/none.csv"):
        score("none.csv")
    with pytest.raises(NotFoundError):
        score("../spec.csv")
