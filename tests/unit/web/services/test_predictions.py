"""A scored CSV is streamed while it is written."""

from __future__ import annotations

import gzip
import io
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TextIO

import polars as pl
import pytest

from dmls_core.airflow.settings import AirflowSettings
from dmls_core.data.encoder import DateFeature, NumberFeature
from dmls_core.errors import DataError, ValidationIssue
from dmls_core.serving.predict import predictor
from dmls_core.serving.triton import placement
from dmls_core.testing.stores import run_coroutine
from dmls_core.web.services import predictions

LINE = "x" * 99 + "\n"


@pytest.fixture
def predict(monkeypatch: pytest.MonkeyPatch, tmp_path) -> Callable[[Callable[[TextIO], None]], None]:
    """Replace the prediction of a file by a function that writes to the answer."""
    settings = AirflowSettings(root=str(tmp_path), triton_repository=str(tmp_path), runner="process")
    monkeypatch.setattr(predictions, "airflow_settings", lambda: settings)
    monkeypatch.setattr(placement, "triton_servers", lambda *_: nullcontext([None]))
    monkeypatch.setattr(predictor, "Predictor", lambda *_, **__: None)
    return lambda write: monkeypatch.setattr(predictor, "predict_file", lambda _, __, target: write(target))


async def body() -> AsyncIterator[bytes]:
    yield b"a,b\n1,2\n"


async def score(most: int = 1000) -> list[bytes]:
    """Return the chunks of the answer, at most ``most`` of them."""
    chunks = []
    stream = await predictions.score_csv(body(), "lab", "iris", "rows.csv")
    async for chunk in stream:
        chunks.append(chunk)
        if len(chunks) == most:
            await stream.aclose()
            break
    return chunks


def test_the_answer_is_whole_and_in_chunks(predict):
    predict(lambda target: target.writelines([LINE] * 5000))
    chunks = run_coroutine(score())
    assert b"".join(chunks) == LINE.encode() * 5000
    assert len(chunks) > 5


def test_an_error_in_the_first_rows_names_the_users_file(predict):
    def fail(target: TextIO) -> None:
        target.write(LINE)
        raise DataError(ValidationIssue("is not a number", file="data.csv", line=2))

    predict(fail)
    with pytest.raises(DataError) as raised:
        run_coroutine(predictions.score_csv(body(), "lab", "iris", "rows.csv"))
    assert raised.value.issues[0].file == "rows.csv"


def test_a_later_error_breaks_the_stream(predict):
    def fail(target: TextIO) -> None:
        target.writelines([LINE] * 5000)
        raise ConnectionError("Triton is down")

    predict(fail)
    with pytest.raises(ConnectionError, match="Triton is down"):
        run_coroutine(score())


def test_scoring_ends_when_the_client_has_gone(predict):
    ended = threading.Event()

    def endless(target: TextIO) -> None:
        try:
            while True:
                target.write(LINE)
        finally:
            ended.set()

    predict(endless)
    assert len(run_coroutine(score(most=2))) == 2
    assert ended.wait(10)


def test_a_file_is_read_as_the_spec_of_the_job_says(predict, monkeypatch):
    seen = []

    def show(_predictor: object, source: Path, target: TextIO) -> None:
        seen.append(source.read_text())
        target.write(LINE)

    predict(lambda target: target.close())
    monkeypatch.setattr(predictor, "predict_file", show)
    monkeypatch.setattr(predictions, "read_notation", lambda *_: {"delimiter": ";", "decimal": ","})

    async def semicolons(content: bytes) -> AsyncIterator[bytes]:
        yield content

    table = io.BytesIO()
    pl.DataFrame({"a": [1.5], "b": [2]}).write_parquet(table)
    files = {
        "a.csv": b"a;b\n1,5;2\n",
        "a.csv.gz": gzip.compress(b"a;b\n1,5;2\n"),
        "a.parquet": table.getvalue(),
    }
    for name, content in files.items():
        assert run_coroutine(collect(predictions.score_csv(semicolons(content), "lab", "iris", name))) == [
            LINE.encode()
        ]
    assert seen == ["a,b\n1.5,2\n"] * 3


async def collect(stream) -> list[bytes]:
    return [chunk async for chunk in await stream]


@pytest.mark.parametrize(
    ("feature", "values", "span", "example"),
    [
        (DateFeature("d"), ["2026-01-31", None], (1.0, 2.0), "2026-01-31"),
        (DateFeature("d"), [None, "2026-02-01"], (1.0, 2.0), "2026-02-01"),
        (DateFeature("d"), [None], (20_000.0, 20_001.0), "2024-10-04"),
        (DateFeature("t", times=True, days=False), [None], (14.5, 15.0), "14:30:00"),
        (NumberFeature("n"), [None, 1.5], None, None),
    ],
)
def test_the_example_of_a_date_is_a_date(feature, values, span, example):
    found = predictions._example(feature, values, span)
    assert found == example
    assert not isinstance(feature, DateFeature) or feature.seconds(found) is not None
