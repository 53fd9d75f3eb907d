"""Predict rows, and score CSV files, with a job's served model."""

from __future__ import annotations

import json
import os
import shlex
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from dmls_core.airflow.settings import airflow_settings, open_repository
from dmls_core.data.encoder import CategoryFeature, Encoder, number
from dmls_core.errors import NotFoundError, UserError
from dmls_core.store import layout

if TYPE_CHECKING:
    from dmls_core.serving import Repository


SECONDS = 20.0

Value = str | int | float | bool | None


class SignatureColumn(BaseModel):
    """A column of the model."""

    name: str
    kind: str = Field(description="`category` or `number`")
    categories: list[str] | None = Field(description="Categories in the training data.")
    range: list[float] | None = Field(description="Smallest and largest value in the training data.")
    example: Value = Field(description="Value in a row that was not part of the training data.")


class Signature(BaseModel):
    """The columns that a served model expects."""

    model: str
    version: int = Field(description="Version that Triton serves.")
    target: str
    labels: list[str] | None = Field(description="Classes; null for a regressor.")
    columns: list[SignatureColumn]


class LabelProbability(BaseModel):
    """Probability of a class."""

    label: str
    probability: float


class Prediction(BaseModel):
    """Prediction for one row."""

    prediction: str | float
    probabilities: list[LabelProbability] = Field(description="Empty for a regressor.")
    target: str
    version: int = Field(description="Version that Triton serves.")
    milliseconds: float = Field(description="Response time of the endpoint.")
    curl: str = Field(description="The same request with curl.")
    python: str = Field(description="The same request in Python.")


def read_signature(team: str, name: str) -> Signature:
    """Return the columns of the job's served model; raise ``NotFoundError`` if no version is served."""
    model = layout.model_name(team, name)
    repository = open_repository(airflow_settings())
    version, encoder = _served(repository, model)
    ranges = repository.read(model, version, "model.json").get("ranges", {})
    example = repository.read(model, version, "golden.json")["columns"]
    return Signature(
        model=model,
        version=version,
        target=encoder.target.name,
        labels=list(encoder.target.labels) if encoder.target.labels is not None else None,
        columns=[
            SignatureColumn(
                name=feature.name,
                kind="category" if isinstance(feature, CategoryFeature) else "number",
                categories=list(feature.categories) if isinstance(feature, CategoryFeature) else None,
                range=ranges.get(feature.name),
                example=_example(example.get(feature.name, [None])[0]),
            )
            for feature in encoder.features
        ],
    )


def predict_row(team: str, name: str, row: Mapping[str, Value]) -> Prediction:
    """Return the live endpoint's prediction for one row; absent columns count as missing values."""
    from dmls_core.serving import connect
    from dmls_core.serving.client import split_addresses
    from dmls_core.serving.served_model import PREDICTION, PROBABILITY

    settings = airflow_settings()
    model = layout.model_name(team, name)
    version, encoder = _served(open_repository(settings), model)
    columns = {name: [_value(row.get(name))] for name in encoder.feature_names}
    with connect(model, grpc=split_addresses(settings.triton_grpc)[0], timeout=SECONDS) as served:
        started = time.perf_counter()
        response = served.predict(columns)
        seconds = time.perf_counter() - started
        labels = served.labels
    found = response[PREDICTION][0]
    return Prediction(
        prediction=str(found) if labels else float(found),
        probabilities=[
            LabelProbability(label=label, probability=float(response[PROBABILITY + label][0]))
            for label in labels
        ],
        target=encoder.target.name,
        version=version,
        milliseconds=round(1000 * seconds, 2),
        curl=_curl(model, split_addresses(settings.triton_http)[0], encoder, columns),
        python=_python(model, split_addresses(settings.triton_grpc)[0], encoder, columns),
    )


def _served(repository: Repository, model: str) -> tuple[int, Encoder]:
    version = repository.serving(model)
    if version is None:
        raise NotFoundError(f"no version of {model} is served yet: deploy one first")
    return version, Encoder.from_json(repository.read(model, version, "encoder.json"))


def _value(value: Value) -> Value:
    return None if isinstance(value, str) and not value.strip() else value


def _example(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def _curl(model: str, address: str, encoder: Encoder, columns: Mapping[str, list[Any]]) -> str:
    from dmls_core.serving.model_config import table_name
    from dmls_core.serving.tensors import table_request

    url = f"http://{address}/v2/models/{table_name(model)}/infer"
    request = shlex.quote(table_request(encoder, columns))
    return f"curl --silent --show-error --fail-with-body {shlex.quote(url)} --data {request}"


def _python(model: str, address: str, encoder: Encoder, columns: Mapping[str, list[Any]]) -> str:
    rows = "".join(
        f"    {json.dumps(feature.name)}: [{_literal(feature, columns[feature.name][0])}],\n"
        for feature in encoder.features
    )
    return (
        "import pandas as pd\n\nfrom dmls_core.serving import connect\n\n"
        f"rows = pd.DataFrame({{\n{rows}}})\n"
        f'with connect("{model}", grpc="{address}") as model:\n    print(model.predict(rows))\n'
    )


def _literal(feature: object, value: Value) -> str:
    if value is None:
        return "None"
    return repr(str(value) if isinstance(feature, CategoryFeature) else number(value))


CHUNK_BYTES = 1 << 16


async def score_csv(body: AsyncIterator[bytes], model: str, file: str) -> AsyncIterator[bytes]:
    """Return the rows of a CSV with their predictions, in chunks, once the first chunk exists.

    Until then errors of the data or of Triton are raised here; later ones break the stream. Messages name
    ``file``. A thread writes into a pipe: it waits for a slow reader, and fails if the reader has gone.
    """
    with ExitStack() as stack:
        source = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dmls-score-"))) / "data.csv"
        with source.open("wb") as target:
            async for part in body:
                await run_in_threadpool(target.write, part)
        read_end, write_end = os.pipe()
        pipe = stack.enter_context(os.fdopen(read_end, "rb"))
        thread = ThreadPoolExecutor(1)
        scored = thread.submit(_score, source, model, file, write_end)
        thread.shutdown(wait=False)
        first = await run_in_threadpool(pipe.read, CHUNK_BYTES)
        if len(first) < CHUNK_BYTES:
            await run_in_threadpool(scored.result)
        return _stream(first, pipe, scored, stack.pop_all())


async def _stream(
    chunk: bytes, pipe: BinaryIO, scored: Future[None], resources: ExitStack
) -> AsyncIterator[bytes]:
    with resources:
        while chunk:
            yield chunk
            chunk = await run_in_threadpool(pipe.read, CHUNK_BYTES)
        await run_in_threadpool(scored.result)


def _score(source: Path, model: str, file: str, write_end: int) -> None:
    from dmls_core.serving import Predictor, predict_file, triton_servers

    settings = airflow_settings()
    try:
        with (
            os.fdopen(write_end, "w", encoding="utf-8", newline="") as target,
            triton_servers(settings.triton_http, settings.triton_grpc) as servers,
        ):
            predict_file(Predictor(open_repository(settings), servers[0], model), source, target)
    except UserError as error:
        raise type(error)([replace(problem, file=file) for problem in error.issues]) from error
