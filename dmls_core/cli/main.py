"""The ``dmls`` command: subcommands, exit codes and error messages.

Exit codes: 0 success, 1 the user's input is wrong (or has drifted), 2 wrong usage of the command, 3 the
platform failed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from dmls_core.cli.console import debugging, print_crash, print_error
from dmls_core.cli.job_commands import list_jobs, logs, pause, resume, retire, show, submit
from dmls_core.cli.key_commands import keys
from dmls_core.cli.model_commands import approve, canary, drift, export, predict, rollback, score, undeploy
from dmls_core.cli.platform_commands import demo, doctor, down, env, sign, up
from dmls_core.cli.spec_commands import init, node, plan, schema, train, validate
from dmls_core.errors import DmlsError, PlatformError

app = typer.Typer(
    name="dmls",
    help="Train, validate and serve models from a TOML spec and a data file.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
_PANELS: dict[str, dict[str, Callable[..., None]]] = {
    "Platform": {"demo": demo, "up": up, "down": down, "env": env, "doctor": doctor},
    "Specs": {
        "validate": validate,
        "schema": schema,
        "init": init,
        "plan": plan,
        "train": train,
        "node": node,
    },
    "Jobs": {
        "submit": submit,
        "jobs": list_jobs,
        "show": show,
        "logs": logs,
        "pause": pause,
        "resume": resume,
        "retire": retire,
    },
    "Models": {
        "approve": approve,
        "predict": predict,
        "score": score,
        "rollback": rollback,
        "undeploy": undeploy,
        "canary": canary,
        "export": export,
        "drift": drift,
        "sign": sign,
    },
}
for panel, commands in _PANELS.items():
    for name, function in commands.items():
        app.command(name, rich_help_panel=panel)(function)
app.command("deploy", rich_help_panel="Models", help="Alias of `dmls approve`.")(approve)
app.add_typer(keys, rich_help_panel="Models")


def _show_version(requested: bool) -> None:
    """Print the version and exit, if the option is given."""
    if requested:
        from importlib.metadata import version

        typer.echo(f"dmls {version('dmls')}")
        raise typer.Exit


@app.callback()
def root(
    _version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Accept the options before the command."""


def main() -> None:
    """Run the command line and exit with its exit code."""
    try:
        app()
    except DmlsError as error:
        if debugging():
            raise
        print_error(error)
        sys.exit(error.exit_code)
    except Exception as error:
        if debugging():
            raise
        print_crash(error)
        sys.exit(PlatformError.exit_code)
