"""Arguments and options that several commands share, and names of jobs as users write them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from dmls_core.errors import UserError, ValidationIssue

SpecArgument = Annotated[
    Path, typer.Argument(metavar="SPEC", exists=True, dir_okay=False, help="The spec, a TOML file.")
]
DataArguments = typer.Argument(
    metavar="DATA...", exists=True, dir_okay=False, help="Data files: CSV or Parquet.", show_default=False
)
FilesArguments = typer.Argument(
    metavar="DATA...",
    exists=True,
    help="Data files: CSV or Parquet; or folders of them, as partitions lie in.",
    show_default=False,
)
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="The job, as TEAM/NAME.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]


class JobName(NamedTuple):
    """A job as its owner writes it: ``team/name``."""

    team: str
    name: str

    def __str__(self) -> str:
        return f"{self.team}/{self.name}"


def parse_job(text: str) -> JobName:
    """Read ``TEAM/NAME``; ``TEAM.NAME``, as the model is called, will do.

    Raises:
        UserError: it is something else.
    """
    match = re.fullmatch(r"([^/.]+)[/.]([^/.]+)", text)
    if not match:
        raise UserError(
            ValidationIssue(f"{text!r} is no job", hint="write TEAM/NAME; `dmls jobs` lists them")
        )
    return JobName(match[1], match[2])
