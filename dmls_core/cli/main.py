"""The ``dmls`` command's entry point: commands, exit codes, and how errors are shown.

Exit codes: 0 done, 1 the user's input is wrong (or has drifted), 2 wrong usage of the command, 3 the platform
failed.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from dmls_core.cli import canary, drift, jobs, model, plan, platform, rollback, spec, train
from dmls_core.cli.console import debugging, print_crash, print_error
from dmls_core.errors import DmlsError, PlatformError

app = typer.Typer(
    name="dmls",
    help="Tuned, validated, served models from a TOML spec and a CSV.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for group in (platform, spec, plan, train, jobs, model, rollback, canary, drift):
    group.register(app)


def show_version(wanted: bool) -> None:
    """Print the version and end, if asked to."""
    if wanted:
        from importlib.metadata import version

        typer.echo(f"dmls {version('dmls')}")
        raise typer.Exit


@app.callback()
def root(
    _version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=show_version, is_eager=True),
    ] = False,
) -> None:
    """Take the options that stand before the command."""


def main() -> None:
    """Run the command line and end the process with its exit code."""
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
