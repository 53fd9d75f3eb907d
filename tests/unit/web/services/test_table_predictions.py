"""Rows of a request reach the table endpoint as the training reads them."""

from __future__ import annotations

import asyncio
import json
from contextlib import nullcontext
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from dmls_core.data.encoder import CategoryFeature, Encoder, NumberFeature, Target
from dmls_core.data.request_rows import CSV, JSON
from dmls_core.errors import DataError
from dmls_core.models import load_spec
from dmls_core.store import Registry, open_store
from dmls_core.web.services import predictions, table_predictions
from dmls_core.web.services.table_predictions import RowsRequest, predict_content

ENCODER = Encoder(
    (NumberFeature("price"), NumberFeature("share"), CategoryFeature("city", ("Köln", "Bonn"))), Target("y")
)
SPEC = """
model = "random-forest-regressor"
n_trials = 1
columns.target = "y"
data.delimiter = ";"
data.decimal = ","
data.thousands = "."
data.encoding = "windows-1252"
data.numbers.share.unit = "%"
"""
FILE = "city;price;share;y\nKöln;1.234;52,88%;1\nBonn;45,06;;2\n".encode("cp1252")
"""Rows of the file that the job was trained on."""


@pytest.fixture
def sent(tmp_path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Let a job with that spec be served; return what reaches its table endpoint."""
    store = open_store(str(tmp_path / "root"))
    Registry(store).accept(load_spec(SPEC.encode(), "spec.toml"), "lab", "rent", [], datetime.now(UTC), "f")
    tables: list[dict[str, Any]] = []

    def predict(columns: dict[str, Any], **_: object) -> dict[str, Any]:
        tables.append(columns)
        return {"prediction": [0.5] * len(columns["price"])}

    served = SimpleNamespace(predict=predict)
    monkeypatch.setattr(predictions, "open_store", lambda: store)
    monkeypatch.setattr(table_predictions, "airflow_settings", lambda: SimpleNamespace(triton_grpc=""))
    monkeypatch.setattr(table_predictions, "open_repository", lambda _: None)
    monkeypatch.setattr(table_predictions, "read_served_encoder", lambda *_: (1, ENCODER))
    monkeypatch.setattr("dmls_core.serving.predict.request.connect", lambda *_, **__: nullcontext(served))
    return tables


def predict(content: bytes, media_type: str) -> str:
    request = RowsRequest("lab", "rent", media_type, JSON, "id", strict=False)
    return asyncio.run(predict_content(request, content)).notes


def test_rows_of_the_trainings_file_are_predicted_as_they_are(sent):
    assert predict(FILE, CSV) == "ignored-column=1"
    assert sent == [{"price": ["1234", "45.06"], "share": ["52.88", None], "city": ["Köln", "Bonn"]}]


def test_numbers_of_json_are_plain(sent):
    row = {"price": "1.234", "share": 52.88, "city": "Köln"}
    predict(json.dumps([row]).encode(), JSON)
    assert sent[0]["price"] == ["1.234"]
    with pytest.raises(DataError) as raised:
        predict(json.dumps([row, {**row, "share": "52,88%"}]).encode(), JSON)
    (issue,) = raised.value.issues
    assert str(issue) == (
        "column 'share', row 2: '52,88%' is not a number (write plain numbers, such as 1234.5)"
    )
    assert issue.pointer == "#/1/share"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (FILE.replace(b"45,06", b"a lot"), "^3:2: column 'price', row 2: 'a lot' is not a number .of a CSV"),
        (FILE.replace(b"45,06", b"45.06"), '^3: price: is a number in another notation than decimal = ","'),
        (
            b"price,share,city\n1.5,2,Bonn\n",
            "column 'price' is absent .*of a CSV, .data. of the job's spec says: the text is windows-1252",
        ),
    ],
    ids=["text", "point", "commas"],
)
@pytest.mark.usefixtures("sent")
def test_a_csv_in_another_notation_is_refused(content: bytes, message: str):
    with pytest.raises(DataError, match=message):
        predict(content, CSV)
