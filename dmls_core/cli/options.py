"""Arguments and options of several commands, and the names of jobs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from dmls_core.errors import UserError, ValidationIssue

SpecArgument = Annotated[
    Path, typer.Argument(metavar="SPEC", exists=True, dir_okay=False, help="The spec: a TOML file.")
]
DataArguments = typer.Argument(
    metavar="DATA...", exists=True, dir_okay=False, help="Data files: CSV or Parquet.", show_default=False
)
FilesArguments = typer.Argument(
    metavar="DATA...",
    exists=True,
    help="Data files (CSV or Parquet), or folders of them, such as partitions.",
    show_default=False,
)
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="The job, as TEAM/NAME.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class JobName(NamedTuple):
    """The name of a job: ``team/name``."""

    team: str
    name: str

    def __str__(self) -> str:
        return f"{self.team}/{self.name}"


def parse_job(text: str) -> JobName:
    """Parse ``TEAM/NAME``, or ``TEAM.NAME`` as models are named; raise ``UserError`` for any other text."""
    match = re.fullmatch(r"([^/.]+)[/.]([^/.]+)", text)
    if not match:
        raise UserError(
            ValidationIssue(f"{text!r} is not a job", hint="write TEAM/NAME; `dmls jobs` lists them")
        )
    return JobName(match[1], match[2])
