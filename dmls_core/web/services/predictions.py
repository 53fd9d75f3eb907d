"""Predict rows, and score CSV files, with a job's served model."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from dmls_core import sandbox
from dmls_core.airflow.settings import airflow_settings, airflow_url, open_repository
from dmls_core.data.bad_cells import describe_cells
from dmls_core.data.encoder import (
    CategoryFeature,
    CellError,
    DateFeature,
    Encoder,
    Feature,
    NumberFeature,
    is_mark,
    is_missing,
    number,
)
from dmls_core.data.formats.names import data_endings
from dmls_core.data.moments import day_of, hour_of
from dmls_core.data.request_rows import MAX_NAMES, MAX_SHOWN, check_columns
from dmls_core.data.row_notes import find_notes
from dmls_core.errors import NotFoundError, UserError
from dmls_core.store import Registry, layout
from dmls_core.web import PREFIX
from dmls_core.web.services import open_store
from dmls_core.web.services.snippets import ROW_FILE, Snippet, is_long, make_snippets

if TYPE_CHECKING:
    from dmls_core.serving import Repository


SECONDS = 20.0

IGNORED = "is not a column of the model and was ignored"
Value = str | int | float | bool | None


class SignatureColumn(BaseModel):
    """A column of the model."""

    name: str
    kind: str = Field(description="`category`, `date` or `number`")
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


class Remark(BaseModel):
    """What is special about a column's value."""

    column: str
    message: str


class Prediction(BaseModel):
    """Prediction for one row."""

    prediction: str | float
    probabilities: list[LabelProbability] = Field(description="Empty for a regressor.")
    target: str
    version: int = Field(description="Version that Triton serves.")
    milliseconds: float = Field(description="Response time of the endpoint.")
    warnings: list[Remark] = Field(description="Values that do not occur in the training data.")
    imputed: list[Remark] = Field(description="Missing values, and what the model uses instead.")
    curl: str = Field(description="The same request with curl.")
    python: str = Field(description="The same request in Python.")
    snippets: list[Snippet] = Field(description="The same request in other languages, too.")
    row_file: str = Field(
        description="File that the snippets read a long row from; empty if they contain it."
    )


def read_signature(team: str, name: str) -> Signature:
    """Return the columns of the job's served model; raise ``NotFoundError`` if no version is served."""
    model = layout.model_name(team, name)
    repository = open_repository(airflow_settings())
    version, encoder = read_served_encoder(repository, model)
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
                kind=_column_type(feature),
                categories=list(feature.categories) if isinstance(feature, CategoryFeature) else None,
                range=ranges.get(feature.name) if isinstance(feature, NumberFeature) else None,
                example=_example(feature, example.get(feature.name, ()), ranges.get(feature.name)),
            )
            for feature in encoder.features
        ],
    )


def predict_row(team: str, name: str, row: Mapping[str, Value], base_url: str) -> Prediction:
    """Return the live endpoint's prediction for one row, with a warning for each value outside of training.

    A column whose value is null counts as missing; columns that the model does not have are ignored. The
    snippets address Airflow by its configured URL, or by ``base_url``. Raise ``DataError`` if a column is
    absent.
    """
    from dmls_core.serving import connect
    from dmls_core.serving.predict.connect import PREDICTION, PROBABILITY

    settings = airflow_settings()
    model = layout.model_name(team, name)
    repository = open_repository(settings)
    version, encoder = read_served_encoder(repository, model)
    ignored = check_columns(row, encoder.feature_names, encoder.target.name)
    columns = {one.name: [_value(row[one.name], one.marks)] for one in encoder.features}
    warnings, imputed = check_values({name: value for name, (value,) in columns.items()}, encoder)
    warnings += [Remark(column=column[:MAX_SHOWN], message=IGNORED) for column in ignored[:MAX_NAMES]]
    with connect(model, grpc=settings.triton_grpc, timeout=SECONDS) as served:
        started = time.perf_counter()
        response = served.predict(columns, notes=False)
        seconds = time.perf_counter() - started
        labels = served.labels
    predicted = response[PREDICTION][0]
    url = f"{airflow_url() or base_url}{PREFIX}/api/v1/predictions/{team}/{name}"
    row = sent_row(columns, encoder)
    snippets = make_snippets(url, row)
    return Prediction(
        prediction=str(predicted) if labels else float(str(predicted)),  # the shortest text of a float32
        probabilities=[
            LabelProbability(label=label, probability=float(str(response[PROBABILITY + label][0])))
            for label in labels
        ],
        target=encoder.target.name,
        version=version,
        milliseconds=round(1000 * seconds, 2),
        warnings=warnings,
        imputed=imputed,
        curl=snippets[0].code,
        python=snippets[1].code,
        snippets=snippets,
        row_file=ROW_FILE if is_long(row) else "",
    )


def sent_row(columns: Mapping[str, Sequence[Value]], encoder: Encoder) -> dict[str, Value]:
    """Return the first row as JSON sends it: null for a missing value, numbers as numbers."""
    row: dict[str, Value] = {}
    for feature in encoder.features:
        value = columns[feature.name][0]
        if _is_missing(value, feature):
            row[feature.name] = None
        else:
            row[feature.name] = number(value) if isinstance(feature, NumberFeature) else value
    return row


def _is_missing(value: Value, feature: Feature) -> bool:
    return feature.text(value) is None if isinstance(feature, CategoryFeature) else is_missing(value)


def check_values(row: Mapping[str, Value], encoder: Encoder) -> tuple[list[Remark], list[Remark]]:
    """Return remarks on values outside of training, and on missing values.

    Raises:
        DataError: a value is not a number, or not a date.
    """
    columns: dict[str, Any] = {name: [value] for name, value in row.items()}
    try:
        notes = find_notes(encoder, columns, encoder.transform(columns)).notes
    except CellError as error:
        raise describe_cells(error) from error
    warnings = [Remark(column=note.column, message=note.message) for note in notes if note.column]
    imputed = [
        Remark(column=feature.name, message=_imputed(feature))
        for feature in encoder.features
        if _is_missing(row[feature.name], feature)
    ]
    return warnings, imputed


def _column_type(feature: Feature) -> str:
    if isinstance(feature, CategoryFeature):
        return "category"
    return "date" if isinstance(feature, DateFeature) else "number"


def _imputed(feature: Feature) -> str:
    if isinstance(feature, DateFeature) and feature.fill is not None:
        return "missing, its parts are replaced by their medians"
    if isinstance(feature, CategoryFeature):
        return "missing, which the model treats as a category of its own"
    if isinstance(feature, NumberFeature) and feature.fill is not None:
        return f"missing, replaced by {feature.fill:g}"
    return "missing, which the model handles itself"


def read_served_encoder(repository: Repository, model: str) -> tuple[int, Encoder]:
    """Return the served version of a model and its encoder; raise ``NotFoundError`` without one."""
    version = repository.serving(model)
    if version is None:
        raise NotFoundError(f"no version of {model} is served: deploy one, or serve an earlier one again")
    encoder = Encoder.from_json(repository.read(model, version, "encoder.json"))
    return version, encoder.with_ranges(repository.read(model, version, "model.json").get("ranges", {}))


def _value(value: Value, marks: Sequence[str]) -> Value:
    return None if isinstance(value, str) and (not value.strip() or is_mark(value, marks)) else value


def _example(feature: Feature, values: Sequence[Any], span: Sequence[float] | None) -> Any:
    """Return the value of the first row; if a date is missing there, another date of the data."""
    value = next(iter(values), None)
    if isinstance(feature, DateFeature) and value is None:
        value = next((one for one in values if one is not None), None)
        if value is None and span:
            return (day_of if feature.days else hour_of)(span[0])
    return f"{value:.6g}" if isinstance(value, float) else value


NOTATION = ("delimiter", "decimal", "thousands", "numbers", "encoding", "header", "skip_rows", "sheet")
"""Keys of ``[data]`` on how text is written."""


def read_notation(team: str, name: str) -> dict[str, Any]:
    """Return those keys of the job's ``[data]`` on how text is written that are not the defaults."""
    from dmls_core.spec.data_table import Data

    registry = Registry(open_store())
    record = registry.job(team, name)
    options = registry.spec(record.spec_sha256).get("data", {}) if record else {}
    default = Data()
    return {
        key: options[key] for key in NOTATION if options.get(key, usual := getattr(default, key)) != usual
    }


CHUNK_BYTES = 1 << 16


async def score_csv(
    body: AsyncIterator[bytes], team: str, name: str, file: str, *, strict: bool = False
) -> AsyncIterator[bytes]:
    """Return the rows of a file with their predictions as CSV, in chunks, once the first chunk exists.

    Text is written as the job's ``[data]`` says; the name shows the format, and whether it is compressed.
    ``strict`` refuses rows unlike those of the training.

    Until then errors of the data or of Triton are raised here; later ones break the stream. Messages name
    ``file``. A thread writes into a pipe: it waits for a slow reader, and fails if the reader has gone.
    """
    with ExitStack() as stack:
        ending = next((end for end in data_endings() if file.lower().endswith(end)), ".csv")
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dmls-score-")))
        source = folder / f"data{ending}"
        with source.open("wb") as target:
            async for part in body:
                await run_in_threadpool(target.write, part)
        read_end, write_end = os.pipe()
        pipe = stack.enter_context(os.fdopen(read_end, "rb"))
        thread = ThreadPoolExecutor(1)
        scored = thread.submit(_score, source, team, name, file, write_end, strict=strict)
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


def _score(source: Path, team: str, name: str, file: str, write_end: int, *, strict: bool) -> None:
    from dmls_core.serving import Predictor, predict_file, triton_servers
    from dmls_core.serving.predict.parquet_files import rows_as_csv
    from dmls_core.serving.triton.placement import select_servers

    settings, model = airflow_settings(), layout.model_name(team, name)
    try:
        with (
            os.fdopen(write_end, "w", encoding="utf-8", newline="") as target,
            rows_as_csv(source, read_notation(team, name), source.parent, limits=sandbox.Limits()) as rows,
            triton_servers(settings.triton_http, settings.triton_grpc) as servers,
        ):
            server = select_servers(servers, model)[0]
            predictor = Predictor(open_repository(settings), server, model, strict=strict)
            predict_file(predictor, rows, target)
    except UserError as error:
        raise type(error)([replace(problem, file=file) for problem in error.issues]) from error
