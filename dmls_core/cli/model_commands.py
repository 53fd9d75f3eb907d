"""``dmls deploy``, ``rollback``, ``canary`` and ``predict``: serve a model and use it."""

from __future__ import annotations

import getpass
import os
import socket
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

import typer
from rich.markup import escape

from dmls_core.cli.console import out, print_json, say
from dmls_core.cli.options import JobArgument, JsonOption, parse_job
from dmls_core.errors import NotFoundError, UserError, ValidationIssue
from dmls_core.settings import load_settings

DEPLOY_SECONDS = 600.0


def deploy(job: JobArgument, as_json: JsonOption = False) -> None:
    """Approve the waiting candidate, as on Airflow's page, and wait until it is served."""
    from dmls_core.cli.job_commands import follow, open_root, print_step, raise_for
    from dmls_core.cli.job_runs import JobRuns
    from dmls_core.intake import read_status

    name = parse_job(job)
    store = open_root()
    status = read_status(store, *name)
    if status is None:
        raise NotFoundError(ValidationIssue(f"there is no job {name}", hint="`dmls jobs` lists them"))
    if status.state != "awaiting approval":
        raise UserError(
            ValidationIssue(f"{name} does not wait for approval: it is {status.state}", hint=status.message)
        )
    JobRuns(load_settings(), *name).approve_latest(say)
    status = follow(
        store,
        *name,
        fingerprint=status.fingerprint,
        seconds=DEPLOY_SECONDS,
        show=print_step,
        pause_at=(),
    )
    if as_json:
        print_json(status.as_json())
    raise_for(status)


def predict(
    job: JobArgument,
    data: Annotated[
        Path,
        typer.Argument(metavar="DATA", exists=True, dir_okay=False, help="CSV with the model's columns."),
    ],
    target: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", dir_okay=False, help="Output file. Default: stdout."),
    ] = None,
    protocol: Annotated[Literal["grpc", "http"], typer.Option(help="Protocol to Triton.")] = "grpc",
) -> None:
    """Predict the rows of a CSV file with the served model, in the columns and labels of the data."""
    from dmls_core.cli.console import share_bar
    from dmls_core.serving import Predictor, Repository, predict_file, triton_servers
    from dmls_core.store import layout

    settings = load_settings()
    model = layout.model_name(*parse_job(job))
    repository = Repository(settings.require("triton_repository"))
    with triton_servers(settings.require("triton_http"), settings.require("triton_grpc")) as servers:
        predictor = Predictor(repository, servers[0], model, protocol=protocol)
        with share_bar(f"predicting with {model} version {predictor.version}") as progress:
            rows = predict_file(predictor, data, target or sys.stdout, progress, say)
    if target:
        out.print(f"{rows:,} predictions by {model} version {predictor.version} in {escape(str(target))}")


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
    from dmls_core.monitoring.counters import count
    from dmls_core.serving import Deployment, Repository, triton_servers
    from dmls_core.store import layout, open_store
    from dmls_core.tracking import promote_served

    settings = load_settings()
    name = parse_job(job)
    model = layout.model_name(*name)
    mlflow = settings.require("mlflow_uri")
    by = f"{_user()}@{socket.gethostname()}"

    def make_champion(version: int, _: int | None) -> None:
        promote_served(mlflow, model, version, deployed_by=f"dmls rollback by {by}")

    addresses = settings.require("triton_http"), settings.require("triton_grpc")
    with triton_servers(*addresses, key=settings.triton_key) as servers:
        repository = Repository(settings.require("triton_repository"))
        done = Deployment(repository, servers, model).rollback(to, finish=make_champion)
    if settings.root:
        count(open_store(settings.root), *name, "rollbacks")
    if as_json:
        print_json(
            {"schema": 1, "model": model, "version": done.version, "previous": done.previous, "by": by}
        )
        return
    out.print(f"{model} is served as version {done.version}, which is champion again (was: {done.previous})")


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
    from dmls_core.tracking import find_challenger

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
                for found in store.list(base):
                    store.download(found.key, folder / found.key.removeprefix(base))
                version = deployment.start_canary(folder, share=share, shadow=shadow)
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
