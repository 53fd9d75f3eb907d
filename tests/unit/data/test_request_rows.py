"""Rows of requests in JSON, CSV and Parquet."""

from __future__ import annotations

import csv
import io
import json
import time

import numpy as np
import polars as pl
import pytest

from dmls_core.data import request_rows
from dmls_core.data.bad_cells import Place
from dmls_core.data.encoder import BadCell
from dmls_core.data.request_rows import CSV, JSON, PARQUET, read_rows, write_rows
from dmls_core.errors import DataError, ValidationIssue
from dmls_core.spec.data_table import Data

COLUMNS = {"size": [0.5, None], "colour": ["red", "grün"]}


def parquet(**columns: list) -> bytes:
    target = io.BytesIO()
    pl.DataFrame(columns).write_parquet(target)
    return target.getvalue()


def test_the_formats_say_the_same():
    rows = [{"size": 0.5, "colour": "red"}, {"size": None, "colour": "grün"}]
    for content, media_type in ((json.dumps(rows).encode(), JSON), (parquet(**COLUMNS), PARQUET)):
        assert read_rows(content, media_type, list(COLUMNS), "y").columns == COLUMNS
    texts = read_rows("\ufeffsize,colour\r\n0.5,red\r\n,grün\r\n".encode(), CSV, list(COLUMNS), "y")
    assert texts.columns == COLUMNS | {"size": ["0.5", None]}
    assert texts.locate(BadCell(1, "colour", "")) == Place(3, 2)


def test_a_cell_is_located_as_its_format_does_it():
    cell = BadCell(1, "a/b~ c", "")
    quoted = read_rows(b'note,a/b~ c\n\n"x\ny",1\n"x\ny",\n', CSV, ["a/b~ c"], "y")
    assert quoted.locate(cell) == Place(5, 2)
    listed = read_rows(b'[{"a/b~ c": 1}, {"a/b~ c": 2}]', JSON, ["a/b~ c"], "y")
    assert listed.locate(cell) == Place(pointer="#/1/a~1b~0%20c")
    with pytest.raises(DataError) as raised:
        read_rows(b'[{"a": 1}, {"a": {}}]', JSON, ["a"], "y")
    assert raised.value.issues[0].pointer == "#/1/a"
    assert raised.value.issues[0].as_json()["pointer"] == "#/1/a"
    assert "pointer" not in ValidationIssue("of a file").as_json()


@pytest.mark.parametrize(
    ("content", "media_type", "message"),
    [
        (b"{", JSON, "not JSON"),
        (b"[" * 100_000, JSON, "not JSON"),
        (b"1", JSON, "not a list of objects"),
        (b'{"rows": [{"a": 1}]}', JSON, "an object with the keys 'rows', and not a list of rows .send only"),
        (b'[{"b": 1}]', JSON, "column 'a' is absent"),
        (b"[]", JSON, "send 1 to 100,000 rows"),
        (b'[{"a": 1}, {"b": 1}]', JSON, "row 2 lacks column 'a'"),
        (b'[{"a": [1]}]', JSON, "row 1, column 'a'"),
        (b"", CSV, "send 1 to 100,000 rows"),
        (b"a,a\n1,2\n", CSV, "'a' more than once"),
        (b"a\n1,2\n", CSV, "^2: the record has 2 fields, but the header has 1"),
        (b",".join(b"c%d" % n for n in range(40_000)) + b"\n", CSV, "column 'a' is absent"),
        (b"a\n\xff\n", CSV, "not UTF-8: byte 0xff"),
        (b"PAR1 and no more", PARQUET, "not Parquet"),
        (parquet(a=[[1, 2]]), PARQUET, "column 'a' has values of type"),
    ],
    ids=lambda value: value[:12].decode(errors="replace") if isinstance(value, bytes) else None,
)
def test_a_body_that_cannot_be_read_is_explained(content: bytes, media_type: str, message: str):
    with pytest.raises(DataError, match=message):
        read_rows(content, media_type, ["a"], "y")


def test_other_columns_are_ignored_unless_the_caller_is_strict():
    for content, media_type in (
        (b"y,a,b\nu,1,2\n", CSV),
        (b'[{"y": "u", "a": "1", "b": [1]}]', JSON),
        (parquet(y=["u"], a=["1"], b=[[2]]), PARQUET),
    ):
        rows = read_rows(content, media_type, ["a"], "y")
        assert (rows.columns, list(rows.ignored)) == ({"a": ["1"]}, ["y", "b"])
        with pytest.raises(DataError, match=r"'y' is what the model predicts.*\n.*has no column 'b'"):
            read_rows(content, media_type, ["a"], "y", strict=True)


def test_a_cell_may_be_longer_than_pythons_csv_allows_by_default():
    csv.field_size_limit(131_072)
    text = "a" * 200_000
    assert read_rows(f"note\n{text}\n".encode(), CSV, ["note"], "y").columns == {"note": [text]}


def test_too_many_rows_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(request_rows, "MAX_ROWS", 2)
    with pytest.raises(DataError, match="more than 2 rows"):
        read_rows(b"a\n1\n2\n3\n4,", CSV, ["a"], "y")


@pytest.mark.parametrize(
    ("content", "media_type"),
    [
        (b"a\n" + b"1\n" * 5_000_000, CSV),
        (b"[" + b",".join([b'{"a":1}'] * 1_000_000) + b"]", JSON),
        (b'[{"a":1}' + b",[]" * 3_000_000 + b"]", JSON),
    ],
    ids=["rows", "objects", "lists"],
)
def test_a_greedy_body_is_refused_soon(content: bytes, media_type: str):
    started = time.process_time()
    with pytest.raises(DataError, match="more than 100,000 rows|lists in its rows"):
        read_rows(content, media_type, ["a"], "y")
    assert time.process_time() - started < 1


def test_many_columns_and_brackets_in_texts_are_no_harm():
    header = b",".join(b"c%d" % n for n in range(100_000)) + b",a\n"
    keys = b'[{"a":1,' + b",".join(b'"c%d":1' % n for n in range(100_000)) + b"}]"
    started = time.process_time()
    with pytest.raises(DataError, match="has no rows"):
        read_rows(header, CSV, ["a"], "y")
    assert len(read_rows(keys, JSON, ["a"], "y").ignored) == 100_000
    text = "[{" * 200_000
    assert read_rows(json.dumps([{"a": text}]).encode(), JSON, ["a"], "y").columns == {"a": [text]}
    assert time.process_time() - started < 1


def test_predictions_in_each_format():
    found = {"prediction": ["yes", "no"], "probability_yes": np.array([0.7, 0.3], np.float32)}
    assert json.loads(write_rows(found, JSON))[1] == {"prediction": "no", "probability_yes": 0.3}
    noted = json.loads(write_rows(found, JSON, {0: ["x"]}))
    assert [row.get("notes") for row in noted] == [["x"], None]
    assert write_rows(found, CSV) == b"prediction,probability_yes\nyes,0.7\nno,0.3\n"
    frame = pl.read_parquet(io.BytesIO(write_rows(found, PARQUET)))
    assert frame.schema["probability_yes"] == pl.Float32
    assert frame["prediction"].to_list() == found["prediction"]


def test_a_csv_is_written_as_the_spec_of_the_job_says():
    data = Data.model_validate({"delimiter": "\t", "skip_rows": 1, "header": False, "encoding": "utf-16"})
    text = '"Title of\n the table"\n\n1\tä\n"2"\tx\n'
    for content in (text.encode("utf-16"), text.encode("utf-16-le")):
        rows = read_rows(content, CSV, ["column_2", "column_1"], "y", data=data)
        assert rows.columns == {"column_2": ["ä", "x"], "column_1": ["1", "2"]}
        assert rows.locate(BadCell(1, "column_1", "")) == Place(5, 1)
