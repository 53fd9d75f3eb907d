"""``dmls validate``, ``schema`` and ``init``: what admission would say, and how a spec is begun."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from dmls_core.cli.console import facts, out, print_json, say
from dmls_core.cli.options import FilesArguments, JsonOption, SpecArgument
from dmls_core.errors import UserError

if TYPE_CHECKING:
    from dmls_core.spec import Spec


def register(app: typer.Typer) -> None:
    """Add this module's commands to ``dmls``."""
    app.command(rich_help_panel="Specs")(validate)
    app.command(rich_help_panel="Specs")(schema)
    app.command(rich_help_panel="Specs")(init)


def validate(
    spec: SpecArgument,
    data: Annotated[list[Path] | None, FilesArguments] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what admission would say of a spec and its data, without any service."""
    from dmls_core.cli.check import check_files

    try:
        checked = check_files(spec, data or [])
    except UserError as error:
        if not as_json:
            raise
        issues = [issue.as_json() for issue in error.issues]
        print_json({"schema": 1, "valid": False, "errors": issues, "spec": None})
        raise typer.Exit(error.exit_code) from error
    if as_json:
        print_json({"schema": 1, "valid": True, "errors": [], "spec": checked.as_json()})
        return
    out.print(f"[bold green]valid:[/] {escape(str(spec))}")
    facts(gist(checked))


def schema() -> None:
    """Print the JSON schema of spec.toml."""
    from dmls_core.models import CATALOGUE
    from dmls_core.spec.json_schema import json_schema

    print_json(json_schema(CATALOGUE))


def init(
    data: Annotated[
        Path, typer.Argument(metavar="DATA", exists=True, dir_okay=False, help="A CSV or Parquet file.")
    ],
) -> None:
    """Print a spec to begin with, guessed from the first rows of the data."""
    from dmls_core.intake.schema_inference import infer_schema, sample_file
    from dmls_core.spec.toml_io import toml_text

    found = infer_schema(data.name, sample_file(data))
    say(f"{len(found.columns)} columns; the target seems to be {found.target}, for {found.task}")
    out.print(toml_text(found.document), end="", markup=False, highlight=False, soft_wrap=True)


def gist(spec: Spec) -> list[tuple[str, str]]:
    """Return what a spec asks for, defaults included, as names and values."""
    features = ", ".join(spec.columns.features) or "every other column"
    split = f"{spec.evaluation.holdout:.0%}, {spec.evaluation.split}"
    return [
        ("models", ", ".join(search.name for search in spec.models)),
        ("trials", f"{spec.n_trials}, {spec.search.strategy} search, {spec.search.folds} folds"),
        ("target", spec.columns.target),
        ("features", features),
        ("metric", spec.search.metric),
        ("holdout", split),
        ("engine", spec.resources.engine),
        ("deploy", spec.deploy.mode),
        ("sha256", spec.sha256),
    ]
