"""``dmls canary``: try the challenger on a share of what users ask, before it is deployed or rejected."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from dmls_core.cli.console import out, print_json
from dmls_core.cli.options import JobArgument, JsonOption, parse_job
from dmls_core.settings import load_settings


def register(app: typer.Typer) -> None:
    """Add this module's command to ``dmls``."""
    app.command(rich_help_panel="Models")(canary)


def canary(
    job: JobArgument,
    share: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of the table endpoint's requests.")
    ] = 0.1,
    shadow: Annotated[
        bool, typer.Option("--shadow", help="The champion answers; the challenger is only compared with it.")
    ] = False,
    stop: Annotated[bool, typer.Option("--stop", help="The champion answers everything again.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Have the challenger answer a share of the table endpoint's requests; deploying any model ends it."""
    from dmls_core.cli.jobs import open_root
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
            f"{model}: the champion answers everything"
            + (f"; version {version} was tried" if version else "")
        )
    else:
        does = "is compared with the champion on" if shadow else "answers"
        out.print(f"{model}: version {version}, the challenger, {does} {share:.0%} of the requests")
