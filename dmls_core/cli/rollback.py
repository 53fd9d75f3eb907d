"""``dmls rollback``: go back to a version that was served before, in Triton and in MLflow together."""

from __future__ import annotations

import getpass
import os
import socket
from typing import Annotated

import typer

from dmls_core.cli.console import out, print_json
from dmls_core.cli.options import JobArgument, JsonOption, parse_job
from dmls_core.settings import load_settings

PANEL = "Models"


def register(app: typer.Typer) -> None:
    """Add this module's command to ``dmls``."""
    app.command(rich_help_panel=PANEL)(rollback)


def rollback(
    job: JobArgument,
    to: Annotated[
        int | None,
        typer.Option(metavar="VERSION", min=1, help="Version in Triton; by default the one before."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Serve an earlier version again, and make it the champion; to the served one: mend what disagrees."""
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
    except (KeyError, OSError):  # no name, as in many a container; KeyError up to Python 3.12
        return f"uid {os.getuid()}"
