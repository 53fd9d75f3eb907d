"""The client with a server that records what it gets; the end-to-end tests use a real one."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

from dmls_core import client
from dmls_core.client import connect
from dmls_core.errors import DataError, NotFoundError, ServingError, UserError
from tests.support.prediction_server import Server

ROOT = Path(__file__).parents[2]


@pytest.fixture
def server():
    with Server() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


COLUMNS = {"x": [1.5, None, 3.0], "a,y": [1, 2, 3]}
SUMS = [2.5, 2.0, 6.0]


def test_every_form_comes_back_as_it_was_sent(server):
    model = connect("lab/parts", server.url + "/", key="dmls_1_secret")
    frame = pd.DataFrame(COLUMNS, index=list("abc"))
    found = model.predict(frame)
    assert list(found.index) == ["a", "b", "c"]
    assert found["probability_a,b"].tolist() == SUMS
    assert model.predict(pl.DataFrame(COLUMNS))["probability_a,b"].to_list() == SUMS
    assert model.predict(COLUMNS) == {"prediction": ["p"] * 3, "probability_a,b": SUMS}
    rows = pl.DataFrame(COLUMNS).to_dicts()
    assert [row["probability_a,b"] for row in model.predict(rows)] == SUMS
    assert set(server.bodies) == {
        '[{"x": "1.5", "a,y": "1"},{"x": null, "a,y": "2"},{"x": "3.0", "a,y": "3"}]'
    }
    about = server.headers[0]
    assert about["path"] == "/dmls/api/v1/predictions/lab/parts"
    assert (about["Authorization"], about["Content-Type"]) == ("Bearer dmls_1_secret", "application/json")


def test_requests_have_ids(server, monkeypatch):
    model = connect("lab/parts", server.url, key="k")
    model.predict(COLUMNS, request_id="order-17")
    assert (server.headers[-1]["X-Request-Id"], model.request_ids) == ("order-17", ["order-17"])
    monkeypatch.setattr(client, "ROWS", 2)
    model.predict(COLUMNS)
    assert model.request_ids == ["made", "made"]
    with pytest.raises(DataError, match="do not fit into one request"):
        model.predict(COLUMNS, request_id="order-18")


def test_notes_are_a_warning_and_no_column(server):
    server.answer = 200, [{"prediction": 1.0}, {"prediction": 2.0, "notes": ["column 'x': 7 is above"]}]
    model = connect("lab/parts", server.url, key="k")
    with pytest.warns(UserWarning, match="rows unlike those of the training: 1; row 2: column 'x': 7 is"):
        assert model.predict({"x": [1, 7]}) == {"prediction": [1.0, 2.0]}
    assert model.notes == {1: ["column 'x': 7 is above"]}
    server.answer = None
    server.notes = "out-of-range=1, ignored-column=2"
    with pytest.warns(UserWarning, match="columns that the model does not have: 2$"):
        model.predict({"x": [1]})
    server.notes = ""
    model.predict({"x": [1]}, strict=True)
    assert server.headers[-1]["path"].endswith("/lab/parts?strict=true")
    assert model.notes == {}


def test_missing_values_of_every_library_are_empty_fields(server):
    values = [None, np.nan, pd.NA, pd.NaT, True, "é"]
    server.answer = 200, [{"prediction": 1.0}] * len(values)
    connect("lab.parts", server.url, key="k").predict({"x": values, "y": range(6)})
    (body,) = map(json.loads, server.bodies)
    assert [row["x"] for row in body] == [None, None, None, None, "True", "é"]


def test_many_rows_are_sent_in_parts(server, monkeypatch):
    model = connect("lab/parts", server.url, key="k")
    monkeypatch.setattr(client, "ROWS", 2)
    found = model.predict({"x": range(5)})
    assert found["probability_a,b"] == [0, 1, 2, 3, 4]
    assert [len(json.loads(body)) for body in server.bodies] == [2, 2, 1]
    assert model.predict({"x": []}) == {"prediction": []}
    assert model.predict([]) == []


PROBLEM = {
    "detail": "column 'x', row 1: '?' is not a number",
    "problems": [{"message": "no number", "key": "x"}],
}


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        ((422, PROBLEM), DataError, "^x: no number$"),
        ((404, {"detail": "no version is served"}), NotFoundError, "no version is served"),
        ((401, {"detail": "the key has expired"}), UserError, "API key is not accepted: the key has expired"),
        ((503, {"detail": "Triton is down"}), ServingError, "failed with 503: Triton is down"),
        ((302, b""), ServingError, "is no DMLS server: status 302"),
        ((200, b"<html>"), ServingError, "is no DMLS server"),
    ],
    ids=["data", "missing", "key", "down", "redirect", "other"],
)
def test_errors_of_the_server_are_errors_of_dmls(server, answer, kind, message):
    server.answer = answer
    with pytest.raises(kind, match=message) as error:
        connect("lab/parts", server.url, key="dmls_1_secret").predict(COLUMNS)
    assert "secret" not in str(error.value)
    assert len(server.bodies) == 1


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({}, "no columns"),
        ({"x": [1], "y": [1, 2]}, "differ in length"),
        (pd.DataFrame([[1, 2]], columns=["x", "x"]), "more than once"),
        ({1: [1], "1": [2]}, "more than once"),
        ([{"x": 1}, {"y": 1}], "the columns of row 2 differ from those of row 1"),
    ],
    ids=["none", "length", "twice", "as-text", "rows"],
)
def test_wrong_rows_are_not_sent(rows, message):
    with pytest.raises(DataError, match=message):
        connect("lab/parts", "https://localhost", key="k").predict(rows)


def test_a_busy_server_is_asked_again_as_often_as_there_is_time(server):
    server.waits = ["0", "0"]
    assert connect("lab/iris", server.url, key="k").predict([{"a": 1}])
    assert len(server.bodies) == 3
    server.waits = ["0", "61"]
    with pytest.raises(ServingError, match="the server is busy"):
        connect("lab/iris", server.url, key="k", timeout=60).predict([{"a": 1}])
    assert len(server.bodies) == 5


def test_an_address_a_model_and_a_key_are_needed(monkeypatch):
    monkeypatch.delenv("DMLS_API_KEY", raising=False)
    for arguments in (("parts", "https://h"), ("lab/parts", "h:80"), ("lab/parts", "file:///etc/passwd")):
        with pytest.raises(UserError, match="write"):
            connect(*arguments, key="k")
    with pytest.raises(UserError, match="DMLS_API_KEY"):
        connect("lab/parts", "https://h")
    monkeypatch.setenv("DMLS_API_KEY", "k")
    assert connect("lab/parts", "https://h")


def test_the_client_needs_the_standard_library_only():
    code = f"import sys; sys.path.append({str(ROOT)!r}); "
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code + "import dmls_core.client"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code + "import dmls_core.cli.main"], capture_output=True, text=True
    )
    assert done.stderr == "the command line needs more packages: pip install 'dmls[cli]'\n"
