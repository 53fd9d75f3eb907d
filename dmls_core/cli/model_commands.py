"""Commands that serve a model and use it: ``dmls approve``, ``rollback``, ``predict``, and others."""

from __future__ import annotations

import getpass
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dmls_core.cli.console import (
    DataArguments,
    JobArgument,
    JsonOption,
    literal,
    out,
    parse_job,
    print_json,
    say,
)
from dmls_core.errors import DataError, NotFoundError, UserError, ValidationIssue
from dmls_core.settings import load_settings

if TYPE_CHECKING:
    from dmls_core.cli.console import JobName
    from dmls_core.monitoring.drift import DriftResult
    from dmls_core.monitoring.served_job import ServedJob
    from dmls_core.serving.predict.scoring_record import ScoringRecord
    from dmls_core.store import ObjectInfo, Store


POLL_SECONDS = 1.0


def approve(job: JobArgument, as_json: JsonOption = False) -> None:
    """Approve the waiting candidate, as on Airflow's page, and wait until it is served.

    Interrupting it takes no approval back.
    """
    from dmls_core.cli.job_commands import WAIT_SECONDS, follow, open_root, print_step, raise_for
    from dmls_core.cli.job_view import JobRuns
    from dmls_core.intake import read_status

    name = parse_job(job)
    store = open_root()
    status = read_status(store, *name)
    if status is None:
        raise NotFoundError(ValidationIssue(f"there is no job {name}", hint="`dmls jobs` lists them"))
    runs = JobRuns(load_settings(), *name)
    # A later version may have been accepted meanwhile: its run starts after the one that waits.
    earlier = status.state == "accepted" and runs.waiting()
    if status.state != "awaiting approval" and not earlier:
        raise UserError(
            ValidationIssue(f"{name} does not wait for approval: it is {status.state}", hint=status.message)
        )
    runs.approve(say)
    status = follow(
        store,
        *name,
        fingerprint=status.fingerprint,
        seconds=WAIT_SECONDS,
        show=print_step,
        pause_at=("awaiting approval",) if earlier else (),
    )
    if as_json:
        print_json(status.as_json())
    raise_for(status)


def predict(
    job: JobArgument,
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA",
            exists=True,
            dir_okay=False,
            help="File with the model's columns, in the format of the job's data.",
        ),
    ],
    target: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", dir_okay=False, help="Output file. Default: stdout."),
    ] = None,
    protocol: Annotated[Literal["grpc", "http"], typer.Option(help="Protocol to Triton.")] = "grpc",
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Refuse unknown categories and values out of the training's range."),
    ] = False,
) -> None:
    """Predict the rows of a file with the served model, in the columns and labels of the data.

    The file is read as the job's spec says: delimiter, decimal mark, encoding.
    """
    from dmls_core.cli.console import share_bar
    from dmls_core.cli.job_commands import accepted_spec, open_root
    from dmls_core.data.row_notes import describe_counts
    from dmls_core.serving import Predictor, Repository, predict_file, triton_servers
    from dmls_core.serving.predict.parquet_files import rows_as_csv
    from dmls_core.serving.triton.placement import select_servers
    from dmls_core.store import layout

    settings = load_settings()
    name = parse_job(job)
    model = layout.model_name(*name)
    repository = Repository(settings.require("triton_repository"))
    options = (accepted_spec(open_root(), *name) or {}).get("data", {}) if settings.root else {}
    with (
        triton_servers(settings.require("triton_http"), settings.require("triton_grpc")) as servers,
        TemporaryDirectory(prefix="dmls-predict-") as folder,
        rows_as_csv(data, options, Path(folder)) as rows,
    ):
        predictor = Predictor(
            repository, select_servers(servers, model)[0], model, protocol=protocol, strict=strict
        )
        with share_bar(f"predicting with {model} version {predictor.version}") as progress:
            n_rows = predict_file(predictor, rows, target or sys.stdout, progress, say)
    if notes := describe_counts(predictor.note_counts):
        say(f"unlike the training data: {notes}")
    if target:
        out.print(f"{n_rows:,} predictions by {model} version {predictor.version} in {literal(target)}")


def score(
    job: JobArgument,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILES",
            exists=True,
            dir_okay=False,
            help="Data files, or a .toml that names a table of a database.",
        ),
    ],
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Refuse unknown categories and values out of the training's range."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Score files on the platform: upload them to `scoring/`, and wait for the predictions in `scored/`.

    Unlike `dmls predict`, it needs access to the store only. Interrupting it does not stop the scoring.
    """
    from dmls_core.cli.job_commands import open_root
    from dmls_core.intake.submissions import check_files_exist
    from dmls_core.store import layout

    name, store = parse_job(job), open_root()
    if issues := check_files_exist(files):
        raise DataError(issues)
    uploaded = []
    for path in files:
        key = layout.scoring_file(*name, layout.STRICT + path.name if strict else path.name)
        store.upload(key, path)
        say(f"uploaded {key}")
        uploaded.append(store.head(key))
    done = [_wait_scored(store, name, info) for info in uploaded if info]
    if as_json:
        print_json({"schema": 1, "files": [asdict(record) for record in done]})
    if issues := [ValidationIssue(**issue) for record in done for issue in record.errors]:
        raise DataError(issues)
    if not as_json:
        for record in done:
            out.print(f"{record.rows:,} predictions by version {record.version} in {literal(record.result)}")


def _wait_scored(store: Store, name: JobName, uploaded: ObjectInfo) -> ScoringRecord:
    """Print the progress of a file until it is scored or has failed, and return its record."""
    from dmls_core.serving.predict.scoring_record import read_record
    from dmls_core.store import layout

    file, version, last = uploaded.key.removeprefix(layout.scoring_file(*name, "")), uploaded.modified, ""
    while True:
        record = read_record(store, *name, file)
        # A record without a time is of a try that failed and is repeated.
        if record and record.uploaded in ("", version.isoformat()):
            if record.state != "scoring" and record.uploaded:
                return record
            line = f"{file}: {record.message or f'{record.progress:.0%}'}"
            if line != last:
                say(line)
            last = line
        time.sleep(POLL_SECONDS)


def rollback(
    job: JobArgument,
    to: Annotated[
        int | None,
        typer.Option(metavar="VERSION", min=1, help="Version in Triton. Default: the previous one."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Serve an earlier version again and make it the champion.

    With the served version, it repairs differences between Triton and MLflow.
    """
    by = _caller()
    with _served_job(job) as served:
        done, model = served.roll_back(to, f"dmls rollback by {by}"), served.deployment.model
    if as_json:
        print_json(
            {"schema": 1, "model": model, "version": done.version, "previous": done.previous, "by": by}
        )
        return
    before = f", instead of version {done.previous}" if done.previous not in (None, done.version) else ""
    out.print(f"{model} is served as version {done.version}, which is champion again{before}")


def undeploy(job: JobArgument, as_json: JsonOption = False) -> None:
    """Stop serving a job's model. Its versions are kept: `dmls rollback` serves one again."""
    by = _caller()
    with _served_job(job) as served:
        version, model = served.stop(f"{by} with dmls undeploy"), served.deployment.model
    if as_json:
        print_json({"schema": 1, "model": model, "version": version, "by": by})
        return
    out.print(f"version {version} of {model} is no longer served" if version else f"{model} was not served")


@contextmanager
def _served_job(job: str) -> Iterator[ServedJob]:
    from dmls_core.monitoring.served_job import ServedJob
    from dmls_core.serving import Deployment, Repository, triton_servers
    from dmls_core.store import layout, open_store

    settings = load_settings()
    name = parse_job(job)
    mlflow, store = settings.require("mlflow_uri"), open_store(settings.root) if settings.root else None
    addresses = settings.require("triton_http"), settings.require("triton_grpc")
    with triton_servers(*addresses, key=settings.triton_key) as servers:
        repository = Repository(settings.require("triton_repository"))
        yield ServedJob(*name, Deployment(repository, servers, layout.model_name(*name)), mlflow, store)


def _caller() -> str:
    return f"{_user()}@{socket.gethostname()}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the user has no name, as in many containers; KeyError up to Python 3.12
        return f"uid {os.getuid()}"


def canary(
    job: JobArgument,
    share: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Fraction of the table endpoint's requests.")
    ] = 0.1,
    shadow: Annotated[
        bool, typer.Option("--shadow", help="Only compare: the champion still answers all requests.")
    ] = False,
    stop: Annotated[bool, typer.Option("--stop", help="End the canary: only the champion answers.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Let the challenger answer a fraction of the table endpoint's requests, until the next deployment."""
    from dmls_core.cli.job_commands import open_root
    from dmls_core.serving import Deployment, Repository, triton_servers
    from dmls_core.store import layout
    from dmls_core.tracking.registry import find_challenger

    settings, name = load_settings(), parse_job(job)
    model = layout.model_name(*name)
    repository = Repository(settings.require("triton_repository"))
    addresses = settings.require("triton_http"), settings.require("triton_grpc")
    with triton_servers(*addresses, key=settings.triton_key) as servers:
        deployment = Deployment(repository, servers, model)
        if stop:
            share, version = 0.0, deployment.end_canary()
        else:
            store = open_root()
            run_key = find_challenger(settings.require("mlflow_uri"), model).run_key
            base = layout.run_folder(*name, run_key) + layout.MODEL
            with TemporaryDirectory(prefix="dmls-canary-") as scratch:
                folder = Path(scratch)
                for info in store.list(base):
                    store.download(info.key, folder / info.key.removeprefix(base))
                version = deployment.start_canary(folder, run_key, share=share, shadow=shadow)
    if as_json:
        print_json({"schema": 1, "model": model, "challenger": version, "share": share, "shadow": shadow})
    elif stop:
        out.print(
            f"{model}: the champion answers all requests"
            + (f"; the canary of version {version} has ended" if version else "")
        )
    else:
        does = "is compared with the champion on" if shadow else "answers"
        out.print(f"{model}: version {version}, the challenger, {does} {share:.0%} of the requests")


SHOWN = 20
"""Number of columns printed; the page has all."""

_DRIFTED = 1
"""Exit code if something drifted."""


def drift(
    job: JobArgument,
    data: Annotated[list[Path], DataArguments],
    page: Annotated[Path, typer.Option("--out", metavar="FILE", help="The HTML page to write.")] = Path(
        "drift.html"
    ),
    as_json: JsonOption = False,
) -> None:
    """Compare new data with the training data of the served model. The exit code is 1 if it has drifted."""
    from dmls_core.cli.job_commands import accepted_spec, open_root
    from dmls_core.data.formats.conversion import converted
    from dmls_core.data.formats.damage import hidden_panics
    from dmls_core.monitoring.new_data import check_files, fetch_baseline
    from dmls_core.monitoring.pages import drift_page
    from dmls_core.spec import Drift
    from dmls_core.store import layout
    from dmls_core.tracking.registry import find_champion

    name = parse_job(job)
    store = open_root()
    spec = accepted_spec(store, *name)
    if spec is None:
        raise NotFoundError(ValidationIssue(f"there is no job {name}", hint="`dmls jobs` lists them"))
    threshold = float((spec.get("drift") or {}).get("threshold", Drift().threshold))
    run_key = find_champion(load_settings().require("mlflow_uri"), layout.model_name(*name)).run_key
    with (
        hidden_panics(),
        TemporaryDirectory(prefix="dmls-drift-") as scratch,
        converted(data, spec["data"]) as files,
    ):
        model = fetch_baseline(store, *name, run_key, Path(scratch))
        report = check_files(model, files, threshold)
    try:
        page.write_text(drift_page(report, str(name)), encoding="utf-8", errors="replace")
    except OSError as error:
        raise UserError(ValidationIssue(f"cannot be written: {error.strerror}", file=str(page))) from error
    if as_json:
        print_json(report.as_json(team=name.team, job=name.name, run_key=run_key))
    else:
        _print(report)
        out.print(f"page: {literal(page)}")
    if report.verdict == "drifted":
        raise typer.Exit(_DRIFTED)


def _print(report: DriftResult) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("COLUMN", "ROLE", "", "INDEX", "CORRECTED P", "LARGEST CHANGE"):
        table.add_column(
            heading, overflow="fold", justify="right" if heading in ("INDEX", "CORRECTED P") else "left"
        )
    for column in report.columns[:SHOWN]:
        table.add_row(
            literal(column.name),
            column.role,
            f"[yellow]{column.verdict}[/]" if column.verdict == "drifted" else column.verdict,
            "" if column.psi is None else f"{column.psi:.3f}",
            "" if column.q_value is None else f"{column.q_value:.2g}",
            literal(column.change),
        )
    out.print(table, soft_wrap=False)
    if (more := len(report.columns) - SHOWN) > 0:
        out.print(f"and {more:,} more columns on the page")
    out.print(literal(report.summary))


def export(
    job: JobArgument,
    target: Annotated[Literal["triton", "kserve", "onnx"], typer.Option(help="Format.")] = "triton",
    folder: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="New or empty folder. Default: JOB-TARGET."),
    ] = None,
    version: Annotated[
        int | None,
        typer.Option(metavar="VERSION", min=1, help="Version in Triton. Default: the served one."),
    ] = None,
    uri: Annotated[
        str,
        typer.Option(
            metavar="URI",
            help="Where you will store the folder models/, such as s3://bucket/iris; it is written into the "
            "manifest. KServe needs it; for triton it adds kubernetes.yaml.",
        ),
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Write a served version as a Triton repository, a KServe InferenceService or an ONNX file."""
    from dmls_core.serving.predict.export import export_version
    from dmls_core.serving.repository.repository import Repository
    from dmls_core.store import layout

    name = parse_job(job)
    folder = folder or Path(f"{name.name}-{target}")
    repository = Repository(load_settings().require("triton_repository"))
    model = layout.model_name(*name)
    done = export_version(repository, model, target, folder, version=version, uri=uri)
    if as_json:
        print_json(done)
        return
    out.print(f"{model} version {done['version']} is in {literal(folder)}:")
    for file in done["files"]:
        out.print(f"  {literal(file)}")
    if target == "onnx":
        out.print(f"ONNX Runtime agrees with the golden rows within {done['largest_difference']:.1g}")
