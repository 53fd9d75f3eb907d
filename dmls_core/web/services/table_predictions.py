"""Predict many rows with a job's table endpoint: JSON, CSV or Parquet in and out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from dmls_core.airflow.settings import airflow_settings, open_repository
from dmls_core.data.bad_cells import describe_cells
from dmls_core.data.encoder import CellError
from dmls_core.data.formats.detection import describe
from dmls_core.data.request_rows import CSV, read_rows, write_rows
from dmls_core.data.row_notes import find_notes
from dmls_core.errors import DataError
from dmls_core.spec.data_table import Data
from dmls_core.store import layout
from dmls_core.web.services.predictions import SECONDS, read_notation, read_served_encoder


@dataclass(frozen=True, slots=True)
class TablePredictions:
    """Predictions in the format that was asked for; ``notes`` counts what is special about the rows."""

    content: bytes
    notes: str


def predict_table(
    team: str, name: str, content: bytes, media_type: str, accept: str, request_id: str, *, strict: bool
) -> TablePredictions:
    """Return the predictions for rows in ``media_type``, in their order, as ``accept``.

    Both are one of ``request_rows.MEDIA_TYPES``; a CSV of rows is written as ``[data]`` of the job's spec
    says. The table endpoint gets the rows in batches, which one version answers; the inference log has them
    under ``request_id``.

    Raises:
        DataError: the rows are not of this format, are too many, or lack columns of the model, or values are
            not numbers or dates; with ``strict`` also if there is anything to note.
        NotFoundError: no version is served.
        ServingError: Triton does not answer.
    """
    from dmls_core.serving import connect

    settings = airflow_settings()
    model = layout.model_name(team, name)
    _, encoder = read_served_encoder(open_repository(settings), model)
    notation = read_notation(team, name) if media_type == CSV else {}
    target = encoder.target.name
    with _described(notation):
        data = Data.model_validate(notation)
        rows = read_rows(content, media_type, encoder.feature_names, target, data=data, strict=strict)
        try:
            notes = find_notes(encoder, rows.columns, encoder.transform(rows.columns))
        except CellError as error:
            raise describe_cells(error, locate=rows.locate) from error
        if strict and notes.notes:
            raise describe_cells(notes.as_error(), locate=rows.locate)
    with connect(model, grpc=settings.triton_grpc, timeout=SECONDS) as served:
        predictions = served.predict(rows.columns, request_id=request_id, notes=False)
    counts = {**notes.counts, **({"ignored-column": len(rows.ignored)} if rows.ignored else {})}
    summary = ", ".join(f"{kind}={count}" for kind, count in counts.items())
    return TablePredictions(write_rows(predictions, accept, notes.by_row()), summary)


@contextmanager
def _described(notation: Mapping[str, Any]) -> Iterator[None]:
    """Let a ``DataError`` say how a CSV is written, unless plainly."""
    try:
        yield
    except DataError as error:
        if not notation:
            raise
        first, *others = error.issues
        hint = f"of a CSV, [data] of the job's spec says: {describe('', notation)}"
        first = replace(first, hint=f"{first.hint}; {hint}" if first.hint else hint)
        raise DataError([first, *others]) from error
