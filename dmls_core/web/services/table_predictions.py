"""Predict many rows with a job's table endpoint: JSON, CSV or Parquet in and out."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool

from dmls_core.airflow.settings import airflow_settings, open_repository
from dmls_core.data.encoder import Encoder
from dmls_core.data.request_rows import CSV
from dmls_core.sandbox import Limits, Worker
from dmls_core.store import layout
from dmls_core.web.services.predictions import SECONDS, read_notation, read_served_encoder
from dmls_core.web.services.request_slots import TABLES, run_prediction

if TYPE_CHECKING:
    from dmls_core.serving.predict.request import PredictionRequest

LIMITS = Limits(memory=2 << 30, nice=5)
"""Limits of a child that answers a large request; it gives way to Airflow's own routes."""

HINT = "send fewer rows or columns per request"

# A child ends with the thread that started it.
_parents = ThreadPoolExecutor(TABLES.total, "dmls-tables")
_child = threading.local()


@dataclass(frozen=True, slots=True)
class TablePredictions:
    """Predictions in the format that was asked for; ``notes`` counts what is special about the rows."""

    content: bytes
    notes: str


@dataclass(frozen=True, slots=True)
class RowsRequest:
    """A request for predictions of a job; its rows come separately.

    ``media_type`` and ``accept`` are one of ``request_rows.MEDIA_TYPES``; the inference log has the rows
    under ``request_id``.
    """

    team: str
    name: str
    media_type: str
    accept: str
    request_id: str
    strict: bool


async def predict_content(request: RowsRequest, content: bytes) -> TablePredictions:
    """Return the predictions for a few rows, computed in a thread of this process.

    Raises:
        UserError: as ``PredictionRequest.answer`` does; no version is served.
        ServingError: Triton does not answer.
    """
    return await run_prediction(_predict, request, content)


async def predict_stream(request: RowsRequest, body: AsyncIterator[bytes]) -> TablePredictions:
    """Return the predictions for many rows, read and computed in a child process with limits.

    Raises:
        UserError: as ``predict_content`` does; or the rows need more time or memory than there is.
        ServingError: Triton does not answer.
    """
    with tempfile.TemporaryDirectory(prefix="dmls-predict-") as folder:
        source = Path(folder) / "body"
        with source.open("wb") as target:
            async for part in body:
                await run_in_threadpool(target.write, part)
        return await asyncio.get_running_loop().run_in_executor(_parents, _predict_file, request, source)


def _predict(request: RowsRequest, content: bytes) -> TablePredictions:
    prepared, encoder = _prepare(request)
    return TablePredictions(*prepared.answer(content, encoder))


def _predict_file(request: RowsRequest, source: Path) -> TablePredictions:
    from dmls_core.serving.predict.request import answer_file

    prepared, encoder = _prepare(request)
    worker: Worker = _child.__dict__.setdefault("worker", Worker(LIMITS))
    target = source.with_name("predictions")
    arguments = asdict(prepared), encoder.as_json(), str(source), str(target)
    notes = worker.call(answer_file, *arguments, file="the request's body", hint=HINT)
    return TablePredictions(target.read_bytes(), notes)


def _prepare(request: RowsRequest) -> tuple[PredictionRequest, Encoder]:
    from dmls_core.serving.predict.request import PredictionRequest

    settings = airflow_settings()
    model = layout.model_name(request.team, request.name)
    _, encoder = read_served_encoder(open_repository(settings), model)
    prepared = PredictionRequest(
        model=model,
        grpc=settings.triton_grpc,
        seconds=SECONDS,
        media_type=request.media_type,
        accept=request.accept,
        request_id=request.request_id,
        strict=request.strict,
        notation=read_notation(request.team, request.name) if request.media_type == CSV else {},
    )
    return prepared, encoder
