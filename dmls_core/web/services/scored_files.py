"""Files that batch scoring predicts: list them, check and submit one, open its predictions."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field

from dmls_core import sandbox
from dmls_core.airflow import audit_log
from dmls_core.airflow.settings import airflow_settings, open_repository
from dmls_core.data.formats.detection import describe, detect
from dmls_core.data.formats.names import file_format, format_of, usual_endings
from dmls_core.data.formats.parquet_footer import read_footer
from dmls_core.errors import DataError, NotFoundError, SubmissionError, ValidationIssue
from dmls_core.serving.predict.scoring_record import ENDING, ScoringRecord, read_record
from dmls_core.settings import IntakeLimits
from dmls_core.store import ObjectInfo, Store, layout
from dmls_core.web.services import open_store, open_store_for_uploads
from dmls_core.web.services.job_details import DELETED_FILE, SCORED
from dmls_core.web.services.predictions import NOTATION, read_notation, read_served_encoder

MAX_LISTED = 100
_READERS = 8
_CHUNK_BYTES = 1 << 20

_ROW = re.compile(r", row (\d+)(?=: )")


class ScoredFile(BaseModel):
    """A file in the job's folder of `scoring/`, and how far its predictions are."""

    file: str = Field(description="Name below `scoring/<team>/<job>/`.")
    size: int
    uploaded: str
    state: Literal["waiting", "scoring", "scored", "failed"]
    message: str
    problems: list[dict[str, Any]] = Field(description="Errors of a failed file, each with a hint.")
    progress: float = Field(description="Share of the rows that are predicted, 0 to 1.")
    rows: int | None = Field(description="Predicted rows, once the file is scored.")
    version: int | None = Field(description="Version in Triton that predicts, or predicted, all rows.")
    updated: str = Field(description="Time of the latest progress; empty while the file waits.")
    result: str = Field(description="Key of the predictions in the store, once the file is scored.")


class ScoredFiles(BaseModel):
    """The files of a job, latest first."""

    files: list[ScoredFile] = Field(description=f"At most {MAX_LISTED}.")
    total: int


class FileCheck(BaseModel):
    """A file that can be scored, as far as its beginning shows."""

    columns: list[str] = Field(description="Columns that the model uses.")
    others: list[str] = Field(description="Columns that are only copied to the predictions.")
    seen: int = Field(description="Rows whose values were checked.")


def list_scored_files(team: str, name: str) -> ScoredFiles:
    """Return the files of a job that are, or will be, scored, latest first."""
    store = open_store()
    infos = [info for info in store.list(layout.scoring_file(team, name, "")) if _name(info)]
    infos.sort(key=lambda info: info.modified, reverse=True)
    with ThreadPoolExecutor(_READERS) as threads:
        files = list(threads.map(lambda info: _describe(store, team, name, info), infos[:MAX_LISTED]))
    return ScoredFiles(files=files, total=len(infos))


def read_scored_file(team: str, name: str, file: str) -> ScoredFile:
    """Return how far one file is; raise ``NotFoundError`` if it is not in ``scoring/``."""
    store = open_store()
    info = store.head(_key(team, name, file))
    if info is None:
        raise NotFoundError(f"{team}/{name} has no file {file} to score")
    return _describe(store, team, name, info)


def open_predictions(team: str, name: str, file: str) -> tuple[str, Iterator[bytes]]:
    """Return a file name for a file's predictions, other than its own, and their content in chunks.

    Raises:
        NotFoundError: there are none (yet).
    """
    from dmls_core.serving.predict.batch_scoring import result_name

    scored = read_scored_file(team, name, file)
    if scored.state != "scored":
        raise NotFoundError(
            ValidationIssue(f"{file} has no predictions: it is {scored.state}", hint=scored.message)
        )
    # The name follows from the file: whoever writes records cannot name another object.
    result = result_name(file)
    stream = open_store_for_uploads().open(layout.scored_file(team, name, result))

    def chunks() -> Iterator[bytes]:
        with stream:
            while part := stream.read(_CHUNK_BYTES):
                yield part

    stem, _, ending = result.rpartition("/")[2].rpartition(".")
    return f"{stem}-predicted.{ending}", chunks()


def submit_file(team: str, name: str, file: str, path: Path, user: str) -> ScoredFile:
    """Check a local file and write it to ``scoring/``, where batch scoring finds it; it replaces one.

    Raises:
        UserError: as ``check_file``.
    """
    size = path.stat().st_size
    check_file(team, name, file, _sample_bytes(file, path), size)
    open_store_for_uploads().upload(_key(team, name, file), path)
    audit_log.record_event(SCORED, layout.dag_id(team, name), user, {"file": file})
    return read_scored_file(team, name, file)


def score_again(team: str, name: str, file: str, user: str) -> ScoredFile:
    """Write a file to ``scoring/`` again, so that the served version predicts it.

    Raises:
        NotFoundError: it is not in ``scoring/``.
        UserError: as ``check_file``.
    """
    read_scored_file(team, name, file)
    with tempfile.TemporaryDirectory(prefix="dmls-scoring-") as folder:
        copy = Path(folder) / "copy"
        open_store_for_uploads().download(_key(team, name, file), copy)
        return submit_file(team, name, file, copy, user)


def delete_file(team: str, name: str, file: str, user: str) -> None:
    """Delete a file and its predictions; raise ``NotFoundError`` if it is not in ``scoring/``."""
    from dmls_core.serving.predict.batch_scoring import result_name

    read_scored_file(team, name, file)
    store = open_store()
    store.delete(_key(team, name, file))  # first, so that it is not scored again
    for filename in (file + ENDING, result_name(file)):
        store.delete(layout.scored_file(team, name, filename))
    audit_log.record_event(DELETED_FILE, layout.dag_id(team, name), user, {"file": file})


def check_file(team: str, name: str, file: str, content: bytes, size: int) -> FileCheck:
    """Check a file of ``size`` bytes by its beginning, or by its end if it is a large Parquet file.

    The columns must be those that the served version needs. The values of the first rows of a text are
    encoded as for a prediction.

    Raises:
        NotFoundError: no version is served.
        UserError: the file cannot be scored.
    """
    from dmls_core.intake.schema_inference.sample import read_sample
    from dmls_core.serving.predict.predictor import added_columns, check_header

    _key(team, name, file)
    limit = IntakeLimits.from_environment().data_bytes
    if size > limit:
        raise DataError(ValidationIssue(f"the file has more than {limit:,} bytes", file=file))
    _, encoder = read_served_encoder(open_repository(airflow_settings()), layout.model_name(team, name))
    complete = True
    if file_format(file).has_footer:
        names, columns = _parquet_names(file, content, size), {}
    else:
        sample = read_sample(file, content, complete=len(content) >= size, keys=read_notation(team, name))
        names = list(sample.names)
        columns = dict(zip(sample.names, sample.columns, strict=True))
        complete = sample.complete
    try:
        check_header(Path(file), names, encoder.feature_names, added_columns(encoder, with_version=True))
        if columns:
            encoder.transform(columns)
    except DataError as error:
        raise DataError([_explain(issue, team, name, content) for issue in error.issues]) from error
    except ValueError as error:
        message = str(error) if complete else _without_row(str(error))
        raise DataError(_explain(ValidationIssue(message, file=file), team, name, content)) from error
    others = [column for column in names if column not in encoder.feature_names]
    seen = len(next(iter(columns.values()), ()))
    return FileCheck(columns=list(encoder.feature_names), others=others, seen=seen)


def _parquet_names(file: str, content: bytes, size: int) -> list[str]:
    from dmls_core.intake.schema_inference.parquet_sample import parquet_columns

    with tempfile.NamedTemporaryFile() as copy:
        copy.write(content)
        copy.flush()
        names: list[str] = sandbox.run(parquet_columns, copy.name, file, size, file=file)
        return names


def _without_row(message: str) -> str:
    """Return an error of a sample without the row, unless it is the file's, as those of the beginning are."""
    from dmls_core.intake.schema_inference.draft import FIRST

    return _ROW.sub(lambda match: match[0] if int(match[1]) <= FIRST else "", message, count=1)


def _sample_bytes(file: str, path: Path) -> bytes:
    """Return the part of a file that ``check_file`` needs."""
    from dmls_core.intake.schema_inference import HEAD, WHOLE
    from dmls_core.intake.schema_inference.sample import read_at

    size = path.stat().st_size
    with path.open("rb") as source:
        if file_format(file).has_footer and size > WHOLE:
            return read_footer(size, partial(read_at, source))
        return source.read(HEAD if file_format(file).is_text else WHOLE)


def _explain(issue: ValidationIssue, team: str, name: str, content: bytes) -> ValidationIssue:
    """Return an issue with a hint if the text is written otherwise than the job's files."""
    notation, job_notation = detect(issue.file or "", content), read_notation(team, name)
    differing = {
        key: value for key, value in notation.items() if key in NOTATION and job_notation.get(key) != value
    }
    if not differing or not file_format(issue.file or "").is_text:
        return issue
    hint = f"{describe('', differing)}: write it as [data] of the job's spec says"
    return replace(issue, hint=issue.hint or hint)


def _name(info: ObjectInfo) -> str:
    """Return the name of a file below its job's folder; empty for a hidden one."""
    parsed = layout.parse_scoring(info.key)
    return parsed[2] if parsed else ""


def _key(team: str, name: str, file: str) -> str:
    """Return the key of a file to score; raise ``SubmissionError`` for a name that cannot be scored."""
    key = layout.scoring_file(team, name, file)
    if file.endswith(".toml"):
        hint = "write the file to scoring/ in the store: this route does not open databases"
        raise SubmissionError(ValidationIssue("a .toml file names a table", hint=hint, file=file))
    if layout.parse_scoring(key) is None or format_of(file) is None:
        hint = f"name it {usual_endings()}; text also with .gz, .zst or .zip"
        raise SubmissionError(ValidationIssue("this is not the name of a file of rows", hint=hint, file=file))
    return key


def _describe(store: Store, team: str, name: str, info: ObjectInfo) -> ScoredFile:
    file = _name(info)
    record = read_record(store, team, name, file)
    uploaded = info.modified.isoformat()
    # A record without a time is of a try that a service failed.
    current = record if record and record.uploaded in ("", uploaded) else None
    empty = ScoringRecord("scoring", file, uploaded, "", 0)
    shown = current or empty
    return ScoredFile(
        file=file,
        size=info.size,
        uploaded=uploaded,
        state=current.state if current else "waiting",
        message=shown.message,
        problems=[dict(issue) for issue in shown.errors],
        progress=shown.progress,
        rows=shown.rows if shown.state == "scored" else None,
        version=shown.version or None,
        updated=shown.updated,
        result=shown.result,
    )
