"""Rows of requests in JSON, CSV and Parquet."""

from __future__ import annotations

import csv
import io
import json

import polars as pl
import pytest

from dmls_core.data import request_rows
from dmls_core.data.request_rows import CSV, JSON, PARQUET, read_rows, write_rows
from dmls_core.errors import DataError

COLUMNS = {"size": [0.5, None], "colour": ["red", "grün"]}


def parquet(**columns: list) -> bytes:
    target = io.BytesIO()
    pl.DataFrame(columns).write_parquet(target)
    return target.getvalue()


def test_the_formats_say_the_same():
    rows = [{"size": 0.5, "colour": "red"}, {"size": None, "colour": "grün"}]
    assert read_rows(json.dumps(rows).encode(), JSON) == COLUMNS
    assert read_rows(parquet(**COLUMNS), PARQUET) == COLUMNS
    texts = read_rows("\ufeffsize,colour\r\n0.5,red\r\n,grün\r\n".encode(), CSV)
    assert texts == COLUMNS | {"size": ["0.5", None]}


@pytest.mark.parametrize(
    ("content", "media_type", "message"),
    [
        (b"{", JSON, "not JSON"),
        (b"[" * 100_000, JSON, "not JSON"),
        (b'{"a": 1}', JSON, "not a list of objects"),
        (b"[]", JSON, "send 1 to 100,000 rows"),
        (b'[{"a": 1}, {"b": 1}]', JSON, "row 2 lacks column 'a'"),
        (b'[{"a": [1]}]', JSON, "row 1, column 'a'"),
        (b"", CSV, "send 1 to 100,000 rows"),
        (b"a,a\n1,2\n", CSV, "'a' more than once"),
        (b"a,b\n1\n", CSV, "line 2: 1 fields, but the header has 2"),
        (b"a\n\xff\n", CSV, "not UTF-8: byte 0xff"),
        (b"PAR1 and no more", PARQUET, "not Parquet"),
        (parquet(a=[[1, 2]]), PARQUET, "column 'a' has values of type"),
    ],
    ids=lambda value: value[:12].decode(errors="replace") if isinstance(value, bytes) else None,
)
def test_a_body_that_cannot_be_read_is_explained(content: bytes, media_type: str, message: str):
    with pytest.raises(DataError, match=message):
        read_rows(content, media_type)


def test_a_cell_may_be_longer_than_pythons_csv_allows_by_default():
    csv.field_size_limit(131_072)
    text = "a" * 200_000
    assert read_rows(f"size,note\n1,{text}\n".encode(), CSV) == {"size": ["1"], "note": [text]}


def test_too_many_rows_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(request_rows, "MAX_ROWS", 2)
    with pytest.raises(DataError, match="3 rows"):
        read_rows(b"a\n1\n2\n3\n", CSV)


def test_predictions_in_each_format():
    found = {"prediction": ["yes", "no"], "probability_yes": [0.75, 0.25]}
    assert json.loads(write_rows(found, JSON))[1] == {"prediction": "no", "probability_yes": 0.25}
    assert write_rows(found, CSV) == b"prediction,probability_yes\nyes,0.75\nno,0.25\n"
    assert pl.read_parquet(io.BytesIO(write_rows(found, PARQUET))).to_dict(as_series=False) == found
