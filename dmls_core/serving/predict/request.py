"""Answer a prediction request: rows in the formats of ``request_rows`` in, predictions out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dmls_core.data.bad_cells import describe_cells
from dmls_core.data.encoder import CellError, Encoder
from dmls_core.data.formats.detection import describe
from dmls_core.data.request_rows import read_rows, write_rows
from dmls_core.data.row_notes import find_notes
from dmls_core.errors import DataError
from dmls_core.serving.predict.connect import connect
from dmls_core.spec.data_table import Data


@dataclass(frozen=True, slots=True)
class PredictionRequest:
    """What a request for predictions says beside its rows.

    Attributes:
        model: ``<team>.<job>``.
        grpc: Triton's addresses, as ``connect`` takes them.
        seconds: time that Triton may take.
        media_type: format of the rows, one of ``request_rows.MEDIA_TYPES``.
        accept: format of the predictions.
        request_id: id of the rows in the inference log.
        strict: whether to refuse rows unlike those of the training.
        notation: keys of ``[data]`` that say how a CSV of rows is written.
    """

    model: str
    grpc: str
    seconds: float
    media_type: str
    accept: str
    request_id: str
    strict: bool
    notation: Mapping[str, Any]

    def answer(self, content: bytes, encoder: Encoder) -> tuple[bytes, str]:
        """Return the predictions for the rows in ``content``, in their order, and the numbers of notes.

        The table endpoint gets the rows in batches, which one version answers.

        Raises:
            DataError: the rows are not of this format, are too many, or lack columns of the model, or values
                are not numbers or dates; with ``strict`` also if there is anything to note.
            ServingError: Triton does not answer.
        """
        names, target = encoder.feature_names, encoder.target.name
        with _described(self.notation):
            data = Data.model_validate(self.notation)
            rows = read_rows(content, self.media_type, names, target, data=data, strict=self.strict)
            try:
                notes = find_notes(encoder, rows.columns, encoder.transform(rows.columns))
            except CellError as error:
                raise describe_cells(error, locate=rows.locate) from error
            if self.strict and notes.notes:
                raise describe_cells(notes.as_error(), locate=rows.locate)
        with connect(self.model, grpc=self.grpc, timeout=self.seconds) as served:
            predictions = served.predict(rows.columns, request_id=self.request_id, notes=False)
        counts = {**notes.counts, **({"ignored-column": len(rows.ignored)} if rows.ignored else {})}
        summary = ", ".join(f"{kind}={count}" for kind, count in counts.items())
        return write_rows(predictions, self.accept, notes.by_row()), summary


def answer_file(request: Mapping[str, Any], encoder: Mapping[str, Any], source: str, target: str) -> str:
    """Answer a request whose rows are in a file, write ``target``, and return the notes; for the sandbox.

    ``request`` has the fields of a ``PredictionRequest``, ``encoder`` is ``Encoder.as_json``.
    """
    content, notes = PredictionRequest(**request).answer(
        Path(source).read_bytes(), Encoder.from_json(encoder)
    )
    Path(target).write_bytes(content)
    return notes


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
