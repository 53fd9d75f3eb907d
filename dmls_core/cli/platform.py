"""``dmls demo``, ``up``, ``down`` and ``doctor``: the embedded platform on one machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from dmls_core.cli.console import err, out, print_json
from dmls_core.cli.options import JsonOption
from dmls_core.cli.starting import print_addresses, start
from dmls_core.errors import DmlsError, PlatformError

if TYPE_CHECKING:
    from dmls_core.devstack.platform import State

PANEL = "Platform"


def register(app: typer.Typer) -> None:
    """Add this module's commands to ``dmls``."""
    for command in (demo, up, down, doctor):
        app.command(rich_help_panel=PANEL)(command)


def demo(
    once: Annotated[bool, typer.Option("--once", help="Stop the platform afterwards.")] = False,
) -> None:
    """Start the platform and take the iris example from a dropped file to a served model."""
    from dmls_core.cli.demo.story import tell
    from dmls_core.devstack.platform import Platform

    platform = Platform()
    try:
        tell(platform, stays=not once)
    except DmlsError:
        if not once:
            err.print(f"logs are in {platform.folder / 'logs'}; `dmls down` stops what was started")
        raise
    finally:
        if once:
            platform.down()
            out.print("the platform is stopped; its data stays in " + escape(str(platform.folder)))
    if not once:
        out.print("the platform goes on running: `dmls down` (or `make down`) stops it")


def up(as_json: JsonOption = False) -> None:
    """Start Airflow, S3, MLflow and Triton on this machine, or whatever of them does not run."""
    from dmls_core.devstack.platform import Platform

    state = start(Platform())
    if as_json:
        print_json(state_json(state))
    else:
        print_addresses(state)


def down() -> None:
    """Stop the embedded platform; its data stays."""
    from dmls_core.devstack.platform import Platform

    platform = Platform()
    if not platform.folder.exists():
        out.print(f"there is no platform in {escape(str(platform.folder))}")
        return
    with err.status("stopping"):
        strays = platform.down()
    if strays:
        err.print(f"{len(strays)} processes had to be ended by their mark")
    out.print("the platform is stopped; its data stays in " + escape(str(platform.folder)))


def doctor(as_json: JsonOption = False) -> None:
    """Say what this machine and its platform have, what they lack, and how to get it."""
    from dmls_core.devstack.platform import Platform

    checks = Platform().doctor()
    if as_json:
        print_json({"schema": 1, "checks": [check.as_json() for check in checks]})
    else:
        for check in checks:
            colour = {"ok": "green", "missing": "yellow", "broken": "red"}[check.state]
            out.print(
                f"[{colour}]{check.state:<8}[/] [bold]{escape(check.name):<18}[/] {escape(check.message)}"
            )
            if check.hint:
                out.print(f"{'':<27} {escape(check.hint)}")
    if any(check.state == "broken" for check in checks):
        raise typer.Exit(PlatformError.exit_code)


def state_json(state: State) -> dict[str, object]:
    """Return the platform's state as JSON, without secrets."""
    return {
        "schema": 1,
        "up": state.up,
        "folder": str(state.folder),
        "services": {
            service.name: {"state": service.state, "url": service.url, "log": service.log}
            for service in state.services
        },
    }
