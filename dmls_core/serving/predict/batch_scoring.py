"""Score files of the store with a served model: ``scoring/<team>/<job>/`` in, ``scored/<team>/<job>/`` out.

Every source becomes a CSV on this machine's disk, which ``predict_file`` reads in batches, so memory does not
grow with the number of rows. A ``.toml`` file names a table of a database instead of containing rows.
"""

from __future__ import annotations

import hashlib
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dmls_core import sandbox
from dmls_core.data.formats.names import format_of, is_plain_text, plain_endings, usual_endings
from dmls_core.data.row_notes import describe_counts
from dmls_core.errors import DataError, DmlsError, NotFoundError, ServingError, UserError, ValidationIssue
from dmls_core.serving.predict.parquet_files import LIMITS, add_predictions, rows_as_csv
from dmls_core.serving.predict.predictor import Predictor, predict_file
from dmls_core.serving.predict.scoring_record import ScoringRecord, read_record, write_record
from dmls_core.settings import IntakeLimits
from dmls_core.store import Store, layout

T = TypeVar("T")

TABLE = ".toml"
REQUEST_BYTES = 64 << 10

PROGRESS_SECONDS = 1.0
"""Shortest interval between two updates of a file's record."""


class TableRequest(BaseModel):
    """Content of a ``.toml`` file: the table to score.

    ``connection`` is the id of an Airflow connection, ``table`` a table or view, ``schema.table`` if needed.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    connection: str = Field(min_length=1, max_length=250)
    table: str = Field(min_length=1, max_length=250)


ReadTable = Callable[[TableRequest, Path, Callable[[int], None]], None]
"""Writes the rows of a table as a CSV with a header, and reports how many it has read."""


def find_unscored(store: Store, files: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Return those of ``(team, job, file)`` that were written to ``scoring/`` after they were last scored."""
    unscored = []
    for team, job, file in files:
        key = layout.scoring_file(team, job, file)
        info = store.head(key) if layout.parse_scoring(key) else None
        if info is None:
            continue
        record = read_record(store, team, job, file)
        done = record and record.state != "scoring" and record.uploaded == info.modified.isoformat()
        if not done:
            unscored.append((team, job, file))
    return unscored


def list_files(store: Store, team: str, job: str) -> list[str]:
    """Return the names of a job's files in ``scoring/``."""
    listed = (layout.parse_scoring(info.key) for info in store.list(layout.scoring_file(team, job, "")))
    return sorted(parsed[2] for parsed in listed if parsed)


def result_name(file: str) -> str:
    """Return the name of a file's predictions: Parquet for Parquet, CSV for all others."""
    return file if file.lower().endswith(plain_endings()) else f"{file}.csv"


class FileScoring:
    """The scoring of one file by the served version of a job's model."""

    def __init__(
        self,
        store: Store,
        connect: Callable[..., Predictor],
        team: str,
        job: str,
        file: str,
        options: Mapping[str, Any],
    ) -> None:
        """Find the file; ``connect`` looks up the served version, and takes ``strict`` as ``Predictor`` does.

        ``options`` are the job's ``[data]`` as JSON data, which say how text is written.

        Raises:
            NotFoundError: the file does not exist.
        """
        self._store, self._connect, self._options = store, connect, options
        self._team, self._job, self._file = team, job, file
        key = layout.scoring_file(team, job, file)
        info = store.head(key) if layout.parse_scoring(key) else None
        if info is None:
            raise NotFoundError(
                ValidationIssue("the file does not exist", hint=f"upload it to {key}", file=file)
            )
        self._info = info
        self._record = ScoringRecord("scoring", file, info.modified.isoformat(), "", 0)

    def run(self, read_table: ReadTable, say: Callable[[str], None] = lambda _: None) -> ScoringRecord:
        """Score the file and return its record; do nothing if this version has scored this content.

        The predictions appear as a whole, so a killed call is simply repeated. ``say`` gets the progress.

        Raises:
            UserError: the rows cannot be scored; the record has the errors.
            PlatformError: the store or Triton failed, or another version went live meanwhile.
        """
        try:
            with TemporaryDirectory(prefix="dmls-scoring-") as scratch, self._own_name():
                self._check()
                return self._score(
                    self._connect(strict=self._file.startswith(layout.STRICT)), Path(scratch), read_table, say
                )
        except UserError as error:
            errors = [issue.as_json() for issue in error.issues]
            self._write(state="failed", message=str(error), errors=errors)
            raise
        except Exception as error:
            message = str(error) if isinstance(error, DmlsError) else f"DMLS failed on this file: {error!r}"
            self._write(state="failed", message=message, uploaded="")
            raise

    def _check(self) -> None:
        if not self._is_table and format_of(self._file) is None:
            hint = f"name it {usual_endings()}, or .toml for a table of a database"
            raise DataError(ValidationIssue("this is not a file of rows", hint=hint))
        most = REQUEST_BYTES if self._is_table else IntakeLimits.from_environment().data_bytes
        if self._info.size > most:
            raise DataError(
                ValidationIssue(
                    "the file is too large",
                    found=f"{self._info.size:,} bytes",
                    expected=f"at most {most:,}",
                )
            )

    @property
    def _is_table(self) -> bool:
        return self._file.endswith(TABLE)

    def _score(
        self, predictor: Predictor, scratch: Path, read_table: ReadTable, say: Callable[[str], None]
    ) -> ScoringRecord:
        source = scratch / Path(self._file).name
        rows = scratch / "rows.csv"
        before = read_record(self._store, self._team, self._job, self._file)
        if self._is_table:
            read_table(self._request(), rows, self._reporter(say, self._report_rows))
            with rows.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
        else:
            content = self._info.etag
        self._record = replace(self._record, content=content, version=predictor.version)
        if before and self._is_done(before):
            say(f"{self._file} was scored by version {before.version} before")
            self._record = replace(before, uploaded=self._record.uploaded)
            return self._write()
        self._write()
        if not self._is_table:
            self._store.download(self._info.key, source, etag=self._info.etag)
        with nullcontext(rows) if self._is_table else rows_as_csv(source, self._options, scratch) as csv:
            return self._predict(predictor, source, csv, scratch, say)

    def _is_done(self, before: ScoringRecord) -> bool:
        same = (before.content, before.version) == (self._record.content, self._record.version)
        return before.state == "scored" and same and self._store.head(before.result) is not None

    def _predict(
        self, predictor: Predictor, source: Path, rows: Path, scratch: Path, say: Callable[[str], None]
    ) -> ScoringRecord:
        result = scratch / "result.csv"
        progress = self._reporter(say, self._report_share)
        n_rows = predict_file(predictor, rows, result, progress, with_version=True)
        if predictor.version != self._record.version:
            raise ServingError(f"another version of {predictor.model} went live: the file is scored again")
        name = result_name(self._file)
        if not is_plain_text(name):
            joined = scratch / "result.parquet"
            sandbox.run(
                add_predictions, str(source), str(result), str(joined), limits=LIMITS, file=source.name
            )
            result = joined
        key = layout.scored_file(self._team, self._job, name)
        self._store.upload(key, result)
        message = f"{n_rows:,} rows scored by version {predictor.version}"
        if notes := describe_counts(predictor.note_counts):
            message += f"; unlike the training data: {notes}"
        say(f"{self._file}: {message}")
        return self._write(state="scored", result=key, rows=n_rows, progress=1.0, message=message)

    def _reporter(
        self, say: Callable[[str], None], report: Callable[[T], ScoringRecord]
    ) -> Callable[[T], None]:
        """Return a function that writes the progress into the record and the log, if it is time for it."""
        last = time.monotonic()

        def progress(value: T) -> None:
            nonlocal last
            if time.monotonic() - last >= PROGRESS_SECONDS:
                last = time.monotonic()
                say(f"{self._file}: {report(value).message}")

        return progress

    def _report_rows(self, rows: int) -> ScoringRecord:
        return self._write(message=f"{rows:,} rows of the table are read")

    def _report_share(self, share: float) -> ScoringRecord:
        return self._write(progress=round(share, 3), message=f"{share:.0%} of the rows are predicted")

    def _request(self) -> TableRequest:
        content = self._store.read(self._info.key, limit=REQUEST_BYTES)[0]
        try:
            return TableRequest.model_validate(tomllib.loads(content.decode()))
        except ValidationError as error:
            raise DataError(
                [
                    ValidationIssue(
                        issue["msg"],
                        hint='write connection = "..." and table = "..."',
                        file=self._file,
                        key=".".join(map(str, issue["loc"])),
                    )
                    for issue in error.errors()
                ]
            ) from None
        except (ValueError, RecursionError) as error:
            raise DataError(ValidationIssue(f"not TOML: {str(error)[:200]}", file=self._file)) from None

    @contextmanager
    def _own_name(self) -> Iterator[None]:
        """Let errors name the file as the user does; the place in a CSV says nothing about a table."""
        try:
            yield
        except UserError as error:
            place: dict[str, Any] = {"line": None, "column": None} if self._is_table else {}
            place["file"] = self._file
            raise type(error)([replace(issue, **place) for issue in error.issues]) from error

    def _write(self, **changes: Any) -> ScoringRecord:  # noqa: ANN401 - fields of the record
        record = replace(self._record, **changes)
        self._record = write_record(self._store, self._team, self._job, record)
        return self._record
