"""Submissions from the browser: schema inference, writing and checking specs, uploads.

They equal submissions by any S3 client: the data first, the spec last.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, Field, ValidationError

from dmls_core.airflow.auth import DagAccessEntity, User, is_authorized
from dmls_core.data.formats.names import formats, is_data_name, is_plain_text
from dmls_core.data.request_json import load_json
from dmls_core.errors import DataError, SpecError, SubmissionError, UserError, ValidationIssue
from dmls_core.intake import group_submissions, read_status
from dmls_core.intake.submissions import check_data_name
from dmls_core.settings import IntakeLimits
from dmls_core.store import Registry, layout
from dmls_core.store.base import MAX_PARTS
from dmls_core.web.services import open_store, open_store_for_uploads
from dmls_core.web.services.commands import replace_spec

if TYPE_CHECKING:
    from dmls_core.spec import Spec
    from dmls_core.spec.data_table import Data

MAX_LISTED = 500

_MAX_SCANNED = 20_000
"""Objects in a team's folder that are searched for data files."""

_PART_BYTES = 8 << 20
"""Size of a part, unless the file would have more parts than S3 allows."""

MAX_SENT = 9 << 20
"""Bytes of a file from which a schema is inferred before its upload."""

_FLOAT = "float"
_NEXT_RUNS = 5


class ColumnRelation(BaseModel):
    """A column that determines another one in every row of the sample."""

    column: str
    other: str
    both: bool = Field(description="Whether they only differ in unit, sign or spelling.")
    message: str = Field(description="What to do about it.")


class InferredSchema(BaseModel):
    """Columns of a data file, and a spec to start with."""

    file: str
    columns: list[dict[str, Any]] = Field(description="Name, kind, missing values, and distribution of each.")
    target: str = Field(description="Most likely target.")
    certain: bool = Field(description="Whether its name and position leave no doubt.")
    likely: list[str] = Field(description="Likely targets, the most likely first.")
    relations: list[ColumnRelation] = Field(description="Columns of the sample that give others away.")
    totals: dict[str, str] = Field(
        description="What to do about columns that are weighted sums of others, by name."
    )
    task: Literal["classification", "regression"]
    document: dict[str, Any] = Field(description="A spec to start with, as an object.")
    toml: str = Field(description="The same spec as TOML.")
    seen: int = Field(description="Rows that were read.")
    rows: int | None = Field(description="Rows of the whole file, if known.")
    preview: list[list[str | None]] = Field(description="The first rows; null is a missing value.")
    extent: str = Field(description="Part of a large file that the sample is from; empty if unknown.")
    data: dict[str, Any] = Field(description="Keys of `[data]` with which the file was read.")
    sheets: list[str] = Field(description="Visible sheets of an Excel workbook.")
    spread: bool = Field(description="Whether the rows that were read are from the whole file.")
    remarks: list[str] = Field(description="What may be wrong with the reading of the columns.")
    notes: list[str] = Field(
        description="The remarks, what the spec leaves out, and columns that give others away."
    )


class SpecSummary(BaseModel):
    """What a valid spec asks for."""

    models: list[str]
    n_trials: int
    metric: str
    target: str | None
    holdout: float
    deploy: str


class CheckedSpec(BaseModel):
    """A spec and its errors."""

    valid: bool
    toml: str
    problems: list[dict[str, Any]] = Field(description="As in `_status.json`.")
    document: dict[str, Any] | None = Field(
        description="The spec as an object; null if it is not valid TOML."
    )
    gist: SpecSummary | None = Field(description="Summary of a valid spec.")
    next_runs: list[str] = Field(
        description="Next times of a valid `[schedule] cron` in its time zone, without `jitter`."
    )


class DataFile(BaseModel):
    """A data file in a job's folder."""

    team: str
    name: str
    file: str
    size: int
    modified: str


class DataFileList(BaseModel):
    """Data files of a team's jobs, latest first."""

    files: list[DataFile]


class SubmissionState(BaseModel):
    """What a job's folder holds, and the status of its submission."""

    files: list[str] = Field(description="Data files.")
    has_spec: bool
    version: int = Field(description="Current version of the job; 0 for a new job.")
    fingerprint: str
    status: dict[str, Any] | None = Field(description="Content of `_status.json`.")
    answered: bool = Field(
        description="Whether the status is about this submission, or the given fingerprint."
    )


class StartedUpload(BaseModel):
    """An upload that has been started."""

    upload: str = Field(description="ID of the upload.")
    part_bytes: int = Field(description="Size of every part but the last.")


class Submitted(BaseModel):
    """A submission that has been written."""

    fingerprint: str = Field(description="Identifies the submission in its status.")
    etag: str = Field(description="ETag of the spec.")


def parse_data(text: str) -> Data:
    """Parse a ``[data]`` in JSON; raise ``DataError`` for each key that is wrong."""
    from dmls_core.spec.data_table import Data

    try:
        load_json(text)  # refuses what Pydantic's parser lets pass
        return Data.model_validate_json(text)
    except ValidationError as error:
        keys = [(one["msg"], ".".join(map(str, ("data", *one["loc"])))) for one in error.errors()]
        raise DataError([ValidationIssue(message, key=key) for message, key in keys]) from None


def infer_schema(file: str, content: bytes, size: int, data: Data | None = None) -> InferredSchema:
    """Infer a data file's schema from a part of its text, or from a whole file of another format.

    ``data`` says how the file of ``size`` bytes is written; by default, this is detected.

    Raises:
        DataError: this is no table, or the file must be uploaded first.
    """
    from dmls_core.intake.schema_inference import infer_file_schema, infer_schema, read_sample

    keys = data.reading if data else None
    if len(content) > MAX_SENT:
        raise DataError(
            ValidationIssue(f"at most {MAX_SENT:,} bytes of a file are read before its upload", file=file)
        )
    if not is_plain_text(file) and is_data_name(file):
        if len(content) < size:
            hint = "upload it: its schema is inferred where it lies"
            raise DataError(ValidationIssue("only text is read before its upload", hint=hint, file=file))
        with TemporaryDirectory(prefix="dmls-schema-") as folder:
            path = Path(folder) / file
            path.write_bytes(content)
            return as_schema(infer_file_schema(path, keys=keys))
    sample = read_sample(file, content, complete=len(content) >= size, keys=keys)
    return as_schema(infer_schema(file, sample).as_json())


def describe_formats() -> list[dict[str, Any]]:
    """Return what the page needs to know of the installed formats."""
    return [
        {"name": one.name, "suffixes": one.suffixes, "text": one.is_text, "keys": sorted(one.keys)}
        for one in formats()
    ]


def as_schema(schema: dict[str, Any]) -> InferredSchema:
    """Return an inferred schema, given as JSON data, with the TOML of its spec."""
    from dmls_core.spec.toml_io import toml_text

    document = schema["document"]
    return InferredSchema.model_validate(
        {**schema, "document": mark_floats(document), "toml": toml_text(document)}
    )


def list_data_files(user: User, team: str) -> DataFileList:
    """Return the data files of a team's jobs that the user may submit to, latest first."""
    files, allowed = [], {}
    for info in islice(open_store().list(layout.incoming_folder(team, "")), _MAX_SCANNED):
        entry = layout.parse_incoming(info.key)
        if not entry or not layout.is_name(entry.job) or check_data_name(entry.filename):
            continue
        if entry.job not in allowed:
            dag_id = layout.dag_id(team, entry.job)
            allowed[entry.job] = is_authorized(user, "POST", dag_id, DagAccessEntity.RUN)
        if allowed[entry.job]:
            files.append((entry, info))
    files.sort(key=lambda pair: pair[1].modified, reverse=True)
    return DataFileList(
        files=[
            DataFile(
                team=team,
                name=entry.job,
                file=entry.filename,
                size=info.size,
                modified=info.modified.isoformat(),
            )
            for entry, info in files[:MAX_LISTED]
        ]
    )


def write_spec(document: Mapping[str, Any], columns: list[str]) -> CheckedSpec:
    """Return a spec as TOML, checked against the data's columns."""
    from dmls_core.spec.toml_io import toml_text

    try:
        toml = toml_text(unmark_floats(document))
    except RecursionError:
        raise SpecError("the spec is nested too deeply: lists and tables in it hold plain values") from None
    return check_spec(toml, columns)


def check_spec(toml: str, columns: list[str]) -> CheckedSpec:
    """Return the errors that admission would find in a spec, each with its line, column, and a hint."""
    from dmls_core.data.formats.csv_dialect import CsvRow
    from dmls_core.intake.csv_check import check_columns
    from dmls_core.models import load_spec

    spec: Spec | None = None
    problems: tuple[ValidationIssue, ...] = ()
    source = toml.encode()
    try:
        spec = load_spec(source)
        problems = tuple(check_columns("the data", CsvRow(1, columns), spec)) if columns else ()
    except UserError as error:
        problems = error.issues
    document = _document(source)
    return CheckedSpec(
        valid=not problems,
        toml=toml,
        problems=[problem.as_json() for problem in problems],
        document=document,
        gist=_summary(spec) if spec and not problems else None,
        next_runs=next_runs((document or {}).get("schedule")),
    )


def next_runs(schedule: object) -> list[str]:
    """Return the next times of a ``[schedule]``, which may be in a spec with errors, as ISO 8601."""
    from pendulum import now

    from dmls_core.airflow.runs.intervals import Intervals
    from dmls_core.spec.cron import cron_issue
    from dmls_core.spec.rules import is_zone

    table = schedule if isinstance(schedule, Mapping) else {}
    cron, zone = table.get("cron"), table.get("timezone", "UTC")
    if not isinstance(cron, str) or not isinstance(zone, str) or cron_issue(cron) or not is_zone(zone):
        return []
    times = islice(Intervals(cron, zone).ends(now("UTC")), _NEXT_RUNS)
    return [time.in_timezone(zone).isoformat(timespec="minutes") for time in times]


def _document(source: bytes) -> dict[str, Any] | None:
    """Return a spec as an object; ``None`` if it is not TOML or cannot be JSON."""
    from dmls_core.settings import SpecLimits
    from dmls_core.spec.toml_io import read_document

    try:
        document = read_document(source, layout.SPEC_FILE, SpecLimits.from_environment()).data
        json.dumps(document, allow_nan=False)
    except (SpecError, TypeError, ValueError):
        return None
    return dict(mark_floats(document))


def _summary(spec: Spec) -> SpecSummary:
    from dmls_core.spec.definitions import worth_trying

    names = [search.name for search in spec.models]
    always = worth_trying(names, 2, 1)
    return SpecSummary(
        models=[name if name in always else f"{name} (for several classes)" for name in names],
        n_trials=spec.n_trials,
        metric=spec.search.metric,
        target=spec.columns.target,
        holdout=spec.evaluation.holdout,
        deploy=spec.deploy.mode,
    )


def mark_floats(value: Any) -> Any:
    """Replace integral floats in plain data by ``{"float": 1}``, since JavaScript takes 1.0 for 1."""
    if isinstance(value, Mapping):
        return {name: mark_floats(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [mark_floats(part) for part in value]
    if isinstance(value, float) and value.is_integer():
        return {_FLOAT: value}
    return value


def unmark_floats(value: Any) -> Any:
    """Undo ``mark_floats``."""
    if isinstance(value, Mapping):
        number = value.get(_FLOAT)
        if len(value) == 1 and isinstance(number, int | float) and not isinstance(number, bool):
            return float(number)
        return {name: unmark_floats(part) for name, part in value.items()}
    return [unmark_floats(part) for part in value] if isinstance(value, list) else value


def read_submission(team: str, name: str, fingerprint: str = "") -> SubmissionState:
    """Return the files in a job's folder, and whether its status is about them or about ``fingerprint``."""
    store = open_store()
    folder = layout.incoming_folder(team, name)
    listing = list(store.list(folder))
    submission = next((entry for entry in group_submissions(listing) if entry.job == name), None)
    status, record = read_status(store, team, name), Registry(store).job(team, name)
    expected = fingerprint or (submission.fingerprint if submission else "")
    files = [info.key.removeprefix(folder) for info in listing]
    return SubmissionState(
        files=[file for file in files if "/" not in file and is_data_name(file)],
        has_spec=bool(submission and submission.spec),
        version=record.version if record else 0,
        fingerprint=submission.fingerprint if submission else "",
        status=status.as_json() if status else None,
        answered=bool(status and expected and status.fingerprint == expected),
    )


def start_upload(team: str, name: str, file: str, size: int) -> StartedUpload:
    """Start the upload of a data file of ``size`` bytes; raise ``SubmissionError`` for its size or name."""
    limits = IntakeLimits.from_environment()
    if size > limits.data_bytes:
        raise SubmissionError(
            f"{file} is too large: it has {size:,} bytes, and the limit is {limits.data_bytes:,}"
        )
    part = max(_PART_BYTES, -(-size // MAX_PARTS))
    return StartedUpload(upload=open_store().begin_upload(_key(team, name, file)), part_bytes=part)


def write_part(team: str, name: str, file: str, upload: str, number: int, content: bytes) -> None:
    """Write a part of an upload; it replaces a part with the same number."""
    open_store_for_uploads().upload_part(_key(team, name, file), upload, number, content)


def complete_upload(team: str, name: str, file: str, upload: str, size: int) -> None:
    """Assemble the parts into the file; raise ``ConflictError`` if they are not the whole file."""
    open_store_for_uploads().finish_upload(_key(team, name, file), upload, size)


def cancel_upload(team: str, name: str, file: str, upload: str) -> None:
    """Delete the parts of an upload."""
    open_store().abort_upload(_key(team, name, file), upload)


def submit_spec(team: str, name: str, toml: str, *, etag: str | None, user: str) -> Submitted:
    """Write ``spec.toml``, which completes the submission; admission validates it.

    With an ``etag``, it changes the spec that has it, and raises as ``replace_spec``.
    """
    store = open_store()
    if etag is None:
        written = store.put(layout.incoming_file(team, name, layout.SPEC_FILE), toml.encode())
    else:
        written = replace_spec(store, team, name, toml, etag=etag, user=user)
    listing = store.list(layout.incoming_folder(team, name))
    submission = next(entry for entry in group_submissions(listing) if entry.job == name)
    return Submitted(fingerprint=submission.fingerprint, etag=written.etag)


def job_exists(team: str, name: str) -> bool:
    """Return whether the job has an accepted version."""
    return Registry(open_store()).job(team, name) is not None


def _key(team: str, name: str, file: str) -> str:
    if problems := check_data_name(file):
        raise SubmissionError(problems)
    return layout.incoming_file(team, name, file)
