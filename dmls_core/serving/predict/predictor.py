"""Predict with the served model from the user's own columns: rows in memory, or a CSV file."""

from __future__ import annotations

import csv
import io
import os
import stat
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmls_core.data.bad_cells import Place, describe_cells, shifted
from dmls_core.data.encoder import BadCell, CellError, Encoder
from dmls_core.data.formats.csv_dialect import csv_reader, numbered
from dmls_core.data.row_notes import RowNotes, find_notes
from dmls_core.errors import DataError, NotFoundError, ServingError, ValidationIssue
from dmls_core.serving.predict.connect import PREDICTION, PROBABILITY
from dmls_core.serving.predict.resumable_file import Parts, written_in_parts
from dmls_core.serving.repository.repository import Repository
from dmls_core.serving.triton.addresses import Protocol
from dmls_core.serving.triton.client import TritonClient
from dmls_core.serving.triton.model_config import MAX_BATCH_SIZE

REQUEST_BYTES = 16 << 20
"""Maximum size of a request's matrix: Triton's HTTP endpoint rejects more than 64 MiB."""


@dataclass(frozen=True, slots=True)
class Predictions:
    """Predictions for rows, in their order.

    Attributes:
        values: labels of a classification, float32 values of a regression; length n_rows.
        probabilities: float32 of shape (n_rows, n_classes), one column per label; ``None``: a regression.
        labels: ``()`` for a regression.
        version: the version in the Triton repository that answered.
        notes: what is unlike the rows of the training.
    """

    values: list[str] | NDArray[np.float32]
    probabilities: NDArray[np.float32] | None
    labels: tuple[str, ...]
    version: int
    notes: RowNotes


class Predictor:
    """A served model that takes the user's own columns.

    The encoder is that of the version that answers: if another version goes live between two requests, its
    encoder is read and the rows are sent again.
    """

    def __init__(
        self,
        repository: Repository,
        client: TritonClient,
        model: str,
        *,
        protocol: Protocol = "grpc",
        strict: bool = False,
    ) -> None:
        """Look up the served version of ``<team>.<job>``; the repository holds each version's encoder.

        ``strict`` refuses rows that there is anything to note about.

        Raises:
            NotFoundError: Triton serves no such model, or a version that the repository does not have.
            ServingError: Triton does not answer.
        """
        self._repository, self._client, self._protocol = repository, client, protocol
        self.model, self._strict = model, strict
        self.note_counts: Counter[str] = Counter()
        """Notes on all rows so far, by kind."""
        self.version, self.encoder = self._served()

    def predict(self, columns: Mapping[str, ArrayLike]) -> Predictions:
        """Predict rows given as raw values by column name, each of length n_rows.

        Raises:
            DataError: a column is missing, or values are not numbers or dates; or there are notes, and the
                predictor is strict.
            ServingError: Triton does not answer.
        """
        try:
            outputs, notes = self._infer(columns)
        except ServingError:
            served = self._served()
            if served[0] == self.version:
                raise
            self.version, self.encoder = served
            outputs, notes = self._infer(columns)
        self.note_counts.update(notes.counts)
        labels = self.encoder.target.labels
        if labels is None:
            return Predictions(outputs[:, 0], None, (), self.version, notes)
        return Predictions(self.encoder.decode(outputs.argmax(axis=1)), outputs, labels, self.version, notes)

    def _infer(self, columns: Mapping[str, ArrayLike]) -> tuple[NDArray[np.float32], RowNotes]:
        try:
            rows = self.encoder.transform(columns)
            notes = find_notes(self.encoder, columns, rows)
            if self._strict and notes.notes:
                raise notes.as_error()
        except CellError as error:
            raise describe_cells(error) from error
        except ValueError as error:
            raise DataError(str(error)) from error
        size = max(1, min(MAX_BATCH_SIZE, REQUEST_BYTES // (4 * rows.shape[1])))
        parts = [
            self._client.infer(
                self.model, rows[start : start + size], version=self.version, protocol=self._protocol
            )
            for start in range(0, len(rows), size)
        ]
        outputs = np.concatenate(parts) if parts else np.empty((0, self._n_outputs), np.float32)
        return outputs, notes

    @property
    def _n_outputs(self) -> int:
        return len(self.encoder.target.labels or ("value",))

    def _served(self) -> tuple[int, Encoder]:
        versions = self._client.versions(self.model)
        if not versions:
            raise NotFoundError(f"Triton does not serve {self.model}: deploy it first")
        encoder = self._repository.read(self.model, versions[-1], "encoder.json")
        return versions[-1], Encoder.from_json(encoder)


MODEL_VERSION = "model_version"
"""Column with the version in Triton that predicted a row."""

BATCH = 4096
"""Rows read, predicted and written at a time."""


def predict_file(
    predictor: Predictor,
    source: Path,
    target: Path | TextIO,
    progress: Callable[[float], None] = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
    *,
    with_version: bool = False,
) -> int:
    """Predict every row of a CSV file, write it with the prediction's columns, and return the number of rows.

    Fields and rows stay as they are, in their order. The columns ``prediction`` and, for a classification,
    ``probability_<label>`` per label are added. If an earlier call for the same file, version and target was
    interrupted, this one resumes after the last batch. ``with_version`` adds ``model_version`` before them.

    ``source`` is UTF-8 with a header. A path as ``target`` appears whole or not at all, unless it is a device
    or a pipe. ``progress`` gets the share of the file that is done (0 to 1), ``say`` a line for users if an
    interrupted file is resumed.

    Raises:
        DataError: the file is not a CSV of this form, or its values do not fit the model.
        ServingError: Triton does not answer, or the model's labels changed meanwhile.
    """
    labels = predictor.encoder.target.labels or ()
    added = added_columns(predictor.encoder, with_version=with_version)
    with _opened(source) as file, _writing(target, _origin(predictor, file)) as parts:
        size = os.fstat(file.fileno()).st_size if file.seekable() else 0
        rows = _rows(source, file)
        _, header = next(rows, (1, []))
        names = [name.strip() for name in header]  # as the training reads a header
        check_header(source, names, predictor.encoder.feature_names, added)
        writer = csv.writer(parts.out, lineterminator="\n")
        if parts.rows:
            say(f"resuming after row {parts.rows:,}, where an earlier call was interrupted")
            next(islice(rows, parts.rows - 1, None))
        else:
            # A converted file has line breaks in its first name, in place of the lines above its header.
            writer.writerow([*(name.lstrip("\n") for name in header), *added])
        while batch := list(islice(rows, BATCH)):
            lines, records = zip(*batch, strict=True)
            columns = dict(zip(names, zip(*records, strict=True), strict=True))
            try:
                answers = predictor.predict(columns)
            except DataError as error:
                if isinstance(error.__cause__, CellError):
                    locate = partial(_locate, names, lines, parts.rows)
                    cells = shifted(error.__cause__, parts.rows)
                    raise describe_cells(cells, file=str(source), locate=locate) from error
                raise
            if answers.labels != labels:
                raise ServingError(
                    f"another version of {predictor.model} went live with other labels: try again"
                )
            version = [str(answers.version)] if with_version else []
            writer.writerows(
                [*row, *version, *more] for row, more in zip(records, _added(answers), strict=True)
            )
            parts.finish(len(batch))
            if size:  # the size of a pipe is unknown
                progress(os.lseek(file.fileno(), 0, os.SEEK_CUR) / size)
        return parts.rows


def _locate(names: Sequence[str], lines: Sequence[int], first: int, cell: BadCell) -> Place:
    """Return where a cell of a batch is, whose first row is the ``first`` of the file."""
    return Place(lines[cell.row - first], names.index(cell.column) + 1 if cell.column else None)


def _origin(predictor: Predictor, file: io.TextIOWrapper) -> dict[str, Any]:
    """Return what the predictions of a file depend on; unique if the file is a pipe."""
    status = os.fstat(file.fileno())
    return {
        "model": predictor.model,
        "version": predictor.version,
        "source": [status.st_size, status.st_mtime_ns, status.st_ino],
        "once": "" if stat.S_ISREG(status.st_mode) else uuid.uuid4().hex,
    }


def _added(answers: Predictions) -> Iterator[list[str]]:
    """Yield the fields added to each row; a float32 is written with as many digits as it has."""
    if answers.probabilities is None:
        yield from ([str(value)] for value in answers.values)
        return
    for label, row in zip(answers.values, answers.probabilities, strict=True):
        yield [label, *map(str, row)]


def _rows(source: Path, file: io.TextIOWrapper) -> Iterator[tuple[int, list[str]]]:
    """Yield the header and the rows with their lines, each as long as the header, without blank lines."""
    reader = csv_reader(file, strict=True)
    width: int | None = None
    try:
        for line, row in numbered(reader):
            if not row:
                continue
            width = width or len(row)
            if len(row) != width:
                raise _wrong(source, line, f"{len(row)} fields", f"{width}, as the header has")
            yield line, row
    except UnicodeDecodeError as error:
        raise _wrong(
            source, reader.line_num + 1, f"byte 0x{error.object[error.start]:02x}", "UTF-8"
        ) from error
    except csv.Error as error:
        raise _wrong(source, reader.line_num, str(error), "CSV") from error


def added_columns(encoder: Encoder, *, with_version: bool = False) -> list[str]:
    """Return the names of the columns that ``predict_file`` adds."""
    probabilities = [PROBABILITY + label for label in encoder.target.labels or ()]
    return [*([MODEL_VERSION] if with_version else []), PREDICTION, *probabilities]


def check_header(source: Path, header: Sequence[str], features: Sequence[str], added: Sequence[str]) -> None:
    """Raise ``DataError`` if rows with this header cannot be predicted; ``added`` are the columns to add."""
    if not header:
        raise _wrong(source, 1, "nothing", "a header and rows")
    counts = Counter(header)
    if missing := [name for name in features if name not in counts]:
        raise _wrong(source, 1, f"no column {', '.join(map(repr, missing))}", "the columns of the training")
    if twice := [name for name, count in counts.items() if count > 1]:
        raise _wrong(source, 1, f"the column {twice[0]!r} more than once", "each column once")
    if taken := [name for name in added if name in counts]:
        raise _wrong(source, 1, f"a column {taken[0]!r}", "no column of that name: the prediction adds it")


def _wrong(source: Path, line: int, actual: str, expected: str) -> DataError:
    return DataError(
        ValidationIssue(
            f"expected {expected}, found {actual}",
            file=str(source),
            line=line,
            found=actual,
            expected=expected,
        )
    )


@contextmanager
def _opened(source: Path) -> Iterator[io.TextIOWrapper]:
    try:
        file = source.open(encoding="utf-8-sig", newline="")
    except OSError as error:
        raise DataError(ValidationIssue(f"cannot be read: {error.strerror}", file=str(source))) from error
    with file:
        yield file


def _writing(target: Path | TextIO, origin: dict[str, Any]) -> AbstractContextManager[Parts]:
    if not isinstance(target, Path):
        return nullcontext(Parts(target, 0))
    if os.path.exists(target) and not target.is_file():  # noqa: PTH110  Path's fails in a closed folder
        return _written_straight(target)
    # Links stay links: /dev/stdout is a link to a file if stdout is redirected to one.
    return written_in_parts(Path(os.path.realpath(target)), origin)


@contextmanager
def _written_straight(target: Path) -> Iterator[Parts]:
    """Write to a device or a pipe, such as /dev/null, which no file may replace."""
    try:
        with target.open("w", encoding="utf-8", newline="") as file:
            yield Parts(file, 0)
    except OSError as error:
        raise DataError(ValidationIssue(f"cannot be written: {error.strerror}", file=str(target))) from error
