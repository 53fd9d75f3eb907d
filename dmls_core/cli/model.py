"""``dmls deploy`` and ``dmls predict``: bring a candidate into service, and ask what is served."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.markup import escape

from dmls_core.cli.console import out, print_json, say
from dmls_core.cli.options import JobArgument, JsonOption, parse_job
from dmls_core.errors import NotFoundError, UserError, ValidationIssue
from dmls_core.settings import load_settings

PANEL = "Models"
DEPLOY_SECONDS = 600.0


def register(app: typer.Typer) -> None:
    """Add this module's commands to ``dmls``."""
    app.command(rich_help_panel=PANEL)(deploy)
    app.command(rich_help_panel=PANEL)(predict)


def deploy(job: JobArgument, as_json: JsonOption = False) -> None:
    """Approve the candidate that waits, as on Airflow's page, and wait until it is served."""
    from dmls_core.cli.airflow_api import JobRuns
    from dmls_core.cli.follow import follow
    from dmls_core.cli.jobs import open_root, print_step, raise_for
    from dmls_core.intake import read_status

    name = parse_job(job)
    store = open_root()
    status = read_status(store, *name)
    if status is None:
        raise NotFoundError(ValidationIssue(f"there is no job {name}", hint="`dmls jobs` lists them"))
    if status.state != "awaiting approval":
        raise UserError(
            ValidationIssue(
                f"nothing of {name} waits for approval: it is {status.state}", hint=status.message
            )
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
        typer.Option("--out", metavar="FILE", dir_okay=False, help="Where to write; stdout if left out."),
    ] = None,
    protocol: Annotated[Literal["grpc", "http"], typer.Option(help="How to ask Triton.")] = "grpc",
) -> None:
    """Predict the rows of a CSV with the served model, in the data's own columns and labels."""
    from dmls_core.cli.progress import share_bar
    from dmls_core.serving import Predictor, Repository, predict_file, triton_servers
    from dmls_core.store import layout

    settings = load_settings()
    model = layout.model_name(*parse_job(job))
    repository = Repository(settings.require("triton_repository"))
    with triton_servers(settings.require("triton_http"), settings.require("triton_grpc")) as servers:
        predictor = Predictor(repository, servers[0], model, protocol=protocol)
        with share_bar(f"asking {model} version {predictor.version}") as progress:
            rows = predict_file(predictor, data, target or sys.stdout, progress, say)
    if target:
        out.print(f"{rows:,} predictions by {model} version {predictor.version} in {escape(str(target))}")
