"""``dmls validate``, ``schema``, ``init``, ``plan``, ``train``: specs without a platform."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dmls_core.cli.console import (
    DataArguments,
    FilesArguments,
    JsonOption,
    OptionalSpecArgument,
    SpecArgument,
    err,
    facts,
    literal,
    out,
    print_json,
    say,
)
from dmls_core.errors import SubmissionError, UserError, ValidationIssue
from dmls_core.html.formats import duration, file_size
from dmls_core.settings import load_settings

if TYPE_CHECKING:
    from dmls_core.spec import Spec
    from dmls_core.store import ObjectInfo, Store
    from dmls_core.training.plan import RunPlan


def validate(
    spec: SpecArgument, data: Annotated[list[Path] | None, FilesArguments] = None, as_json: JsonOption = False
) -> None:
    """Check a spec and its data as admission does, without any service."""
    from dmls_core.intake.column_check import sample_note
    from dmls_core.settings import IntakeLimits

    try:
        checked, files, notes = check_files(spec, data or [])
    except UserError as error:
        if not as_json:
            raise
        issues = [issue.as_json() for issue in error.issues]
        print_json({"schema": 1, "valid": False, "errors": issues, "notes": [], "spec": None})
        raise typer.Exit(error.exit_code) from error
    if as_json:
        answer = {"valid": True, "errors": [], "notes": list(notes), "spec": checked.as_json()}
        print_json({"schema": 1, **answer})
        return
    out.print(f"[bold green]valid:[/] {literal(spec)}")
    if note := sample_note(files, checked, IntakeLimits.from_environment()):
        err.print(note)
    print_notes(notes)
    if checked.data.source:
        err.print("The source was not checked: admission does so, through the Airflow connection.")
    facts(_gist(checked))


def print_notes(notes: Sequence[str]) -> None:
    """Print what the user should know of the data."""
    for note in notes:
        err.print(f"[bold yellow]note:[/] {literal(note)}")


def schema() -> None:
    """Print the JSON schema of spec.toml."""
    from dmls_core.models import CATALOGUE
    from dmls_core.spec.json_schema import json_schema

    print_json(json_schema(CATALOGUE))


def init(
    data: Annotated[
        Path,
        typer.Argument(metavar="DATA", exists=True, dir_okay=False, help="A CSV, Parquet or Excel file."),
    ],
    target: Annotated[
        str, typer.Option(metavar="COLUMN", help="The column to predict. Default: the most likely target.")
    ] = "",
) -> None:
    """Print a spec to start from, inferred from a sample of the data."""
    from dmls_core.intake.schema_inference import infer_file_schema
    from dmls_core.intake.submissions import check_files_exist
    from dmls_core.spec.toml_io import toml_text

    if issues := check_files_exist([data]):
        raise SubmissionError(issues)
    draft = infer_file_schema(data, target)
    inferred = "" if target else "inferred "
    say(f"{len(draft['columns'])} columns; {inferred}target: {draft['target']} ({draft['task']})")
    if not draft["certain"]:
        say(f"The target is a guess. Choose it with --target; likely: {', '.join(draft['likely'])}")
    print_notes(draft["notes"])
    out.print(toml_text(draft["document"]), end="", markup=False, highlight=False, soft_wrap=True)


def _gist(spec: Spec) -> list[tuple[str, str]]:
    """Return the content of a spec, including defaults, as names and values."""
    from dmls_core.data.split.description import describe_split, split_settings

    features = ", ".join(spec.columns.features) or "every other column"
    source = [("source", spec.data.source.label)] if spec.data.source else []
    return [
        *source,
        ("models", ", ".join(search.name for search in spec.models)),
        ("trials", f"up to {spec.n_trials}, {spec.search.strategy} search, {spec.search.folds} folds"),
        ("target", spec.columns.target),
        ("features", features),
        ("metric", spec.search.metric),
        ("holdout", describe_split(split_settings(spec))),
        ("engine", spec.resources.engine),
        ("deploy", spec.deploy.mode),
        ("sha256", spec.sha256),
    ]


def plan(
    spec: OptionalSpecArgument = None,
    data: Annotated[list[Path] | None, DataArguments] = None,
    platform: Annotated[
        bool,
        typer.Option("--platform", help="Plan the platform, from the runs of the last four weeks."),
    ] = False,
    jobs: Annotated[
        float, typer.Option(min=0.01, help="With --platform: multiply the number of jobs by this factor.")
    ] = 1.0,
    rows: Annotated[
        float, typer.Option(min=0.01, help="With --platform: multiply their rows by this factor.")
    ] = 1.0,
    as_json: JsonOption = False,
) -> None:
    """Estimate the engine, memory and time of a run on a machine like this one; or plan the whole platform.

    For a run: reads the data and times a few small fits on samples, which takes seconds. With --platform:
    replays the finished runs on the slots of Airflow's pools, and needs Airflow's configuration.
    """
    if platform:
        from dmls_core.cli.embedded_airflow import print_capacity

        print_capacity(jobs, rows, as_json=as_json)
        return
    if not spec or not data:
        raise typer.BadParameter("name a spec and its data files, or --platform")
    if (jobs, rows) != (1.0, 1.0):
        raise typer.BadParameter("--jobs and --rows plan a platform: add --platform")
    checked, _, _ = check_files(spec, data)
    from dmls_core.training.plan import plan_run

    estimate = plan_run(checked, data)
    if as_json:
        print_json(estimate.as_json())
        return
    facts(_lines(estimate))
    for warning in estimate.warnings:
        err.print(f"[bold yellow]warning:[/] {literal(warning)}")


def _lines(plan: RunPlan) -> list[tuple[str, Any]]:
    search = plan.seconds - plan.load_seconds - max(model.fit_seconds for model in plan.models)
    lines = [
        ("data", f"{plan.rows:,} rows, {plan.features} features, {file_size(plan.matrix_bytes)} as a matrix"),
        ("trials", f"{plan.trials}"),
        ("time", f"about {duration(plan.seconds)}, of which the search takes {duration(search)}"),
        ("memory", f"about {file_size(plan.memory_bytes)}"),
    ]
    if plan.node_bytes:
        lines.append(("memory of a node", f"about {file_size(plan.node_bytes)}, beside the trainer's"))
    for model in plan.models:
        lines += [
            ("model", model.name),
            ("engine", f"{model.engine} ({model.why})" if model.why else model.engine),
            ("searched", ", ".join(model.searched) or "nothing"),
            ("largest fit", f"about {duration(model.fit_seconds)}"),
            ("largest model", f"about {file_size(model.model_bytes)} in Triton"),
        ]
    return lines


_SHOWN = 20
"""Names in a message."""


class LocalFiles:
    """Files anywhere on this machine, read by their keys in an upload."""

    def __init__(self, paths: Mapping[str, Path]) -> None:
        self._paths = paths

    def existing(self) -> tuple[ObjectInfo, ...]:
        """Return the files that exist."""
        heads = {key: self._store(key).head(path.name) for key, path in self._paths.items()}
        return tuple(replace(info, key=key) for key, info in heads.items() if info)

    def read(self, key: str, *, limit: int | None = None, start: int = 0) -> tuple[bytes, ObjectInfo]:
        """See ``Store.read``."""
        data, info = self._store(key).read(self._paths[key].name, limit=limit, start=start)
        return data, replace(info, key=key)

    def download(self, key: str, path: Path) -> ObjectInfo:
        """See ``Store.download``."""
        return self._store(key).download(self._paths[key].name, path)

    def _store(self, key: str) -> Store:
        from dmls_core.store import open_store

        return open_store(str(self._paths[key].parent))


def check_files(
    spec_file: Path, data_files: Sequence[Path]
) -> tuple[Spec, Sequence[ObjectInfo], Sequence[str]]:
    """Check a spec and its data, files or folders, by the rules of admission; return them and the notes.

    Raises ``UserError`` with all issues of the spec, or those of the data if the spec is valid.
    """
    from dmls_core.data.formats.names import usual_endings
    from dmls_core.intake.data_files import check_data, choose_data
    from dmls_core.intake.submissions import Submission, check_files_exist, named_files
    from dmls_core.models import load_spec
    from dmls_core.settings import IntakeLimits
    from dmls_core.store import layout

    spec = load_spec(_read_spec(spec_file), str(spec_file))
    limits = IntakeLimits.from_environment()
    files = named_files(data_files)
    if issues := check_files_exist(path for _, path in files):
        raise SubmissionError(issues)
    if spec.data.source and files:
        raise SubmissionError(
            ValidationIssue(
                "the spec says that its data is elsewhere",
                hint="leave out the files, or remove [data.source]",
                file=str(spec_file),
                key="data.source",
                found=spec.data.source.label,
            )
        )
    # Symbolic links are followed, as in an upload: a local store ignores them.
    local_files = LocalFiles({layout.incoming_file("", "", name): path.resolve() for name, path in files})
    existing = local_files.existing()
    submission = Submission(team="", job="", spec=None, files=existing, issues=(), fingerprint="")
    chosen = choose_data(submission, spec) if existing else []
    if existing and not chosen:
        raise SubmissionError(
            ValidationIssue(
                "no data file has the name in the spec",
                file=str(spec_file),
                key="data.path",
                found=", ".join(name for name, _ in files[:_SHOWN]),
                expected=spec.data.path or f"files with one of the endings {usual_endings()}",
            )
        )
    _, findings = check_data(local_files, list(chosen), spec, limits)
    if findings.issues:
        raise SubmissionError(findings.issues)
    return spec, chosen, findings.notes


def _read_spec(file: Path) -> bytes:
    """Return a spec, or the beginning of one that is too large; raise ``UserError`` if it cannot be read."""
    from dmls_core.settings import SpecLimits

    try:
        with file.open("rb") as content:  # which a device has without end
            return content.read(SpecLimits.from_environment().bytes + 1)
    except OSError as error:
        raise UserError(ValidationIssue(f"cannot be read: {error.strerror}", file=str(file))) from error


def train(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help="The spec: a path or an s3:// URL.")],
    data: Annotated[list[str], typer.Argument(metavar="DATA...", help="Data files: paths or s3:// URLs.")],
    out: Annotated[str, typer.Option(metavar="DIR", help="Output: a folder or an s3:// URL.")],
    team: Annotated[str, typer.Option(help="The team that owns the job.")] = "local",
    name: Annotated[str, typer.Option(help="The job's name.")] = "model",
    run_key: Annotated[str, typer.Option(help="Key of the run. Default: derived from spec and data.")] = "",
    engine: Annotated[
        Literal["auto", "cpu", "gpu"], typer.Option(help="The engine, instead of the spec's.")
    ] = "auto",
    etag: Annotated[
        list[str] | None,
        typer.Option(help="Required ETag of a data file; give it once per file.", show_default=False),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Ignore rows before this time, by \\[columns] time.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Ignore rows from this time on, by \\[columns] time.")
    ] = None,
    champion: Annotated[
        str,
        typer.Option(
            metavar="DIR", help="Folder or s3:// URL of the champion's run, to start from and compare with."
        ),
    ] = "",
    champion_version: Annotated[int, typer.Option(help="The champion's version in MLflow's registry.")] = 0,
    worker: Annotated[
        int,
        typer.Option(
            help="Number of this trainer if several share a search (DMLS_STUDY_URL); 0 writes the result."
        ),
    ] = 0,
    as_json: JsonOption = False,
) -> None:
    """Tune and train a model, and write the model and its result.

    An interrupted run continues if it is started again with the same --out.
    """
    load_settings()  # for the credentials of an embedded platform
    from dmls_core.data.formats.damage import hidden_panics
    from dmls_core.training.request import TrainRequest
    from dmls_core.training.run import run_train

    request = TrainRequest(
        spec,
        tuple(data),
        out,
        team=team,
        name=name,
        run_key=run_key,
        engine=engine,
        etags=tuple(etag or ()),
        since=_parse_time(since),
        until=_parse_time(until),
        champion=champion,
        champion_version=champion_version,
        worker=worker,
    )
    with hidden_panics():
        run_train(request, as_json=as_json)


def node(
    out: Annotated[str, typer.Argument(metavar="DIR", help="Output of the run: a folder or an s3:// URL.")],
) -> None:
    """Join a run as one of its nodes until it ends. The runners `docker` and `kubernetes` start it."""
    load_settings()
    from dmls_core.training.node_trainers import run_node

    run_node(out)


def _parse_time(text: str | None) -> datetime | None:
    """Parse a time in ISO 8601, in UTC unless it has a time zone."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a time such as 2026-01-31T14:05:00+00:00") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
