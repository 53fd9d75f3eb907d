"""``dmls plan``: what a run will need, before it is dropped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from dmls_core.cli.console import err, facts, print_json
from dmls_core.cli.options import DataArguments, JsonOption, SpecArgument

if TYPE_CHECKING:
    from dmls_core.training.plan import RunPlan


def register(app: typer.Typer) -> None:
    """Add this module's command to ``dmls``."""
    app.command(rich_help_panel="Specs")(plan)


def plan(spec: SpecArgument, data: Annotated[list[Path], DataArguments], as_json: JsonOption = False) -> None:
    """Say what engine, memory and time a run will need on a machine like this one.

    The data is read and a few small fits on samples of it are timed: it takes seconds.
    """
    from dmls_core.cli.check import check_files

    checked = check_files(spec, data)
    from dmls_core.training.plan import plan_run

    found = plan_run(checked, data)
    if as_json:
        print_json(found.as_json())
        return
    facts(_lines(found))
    for warning in found.warnings:
        err.print(f"[bold yellow]warning:[/] {escape(warning)}")


def _lines(plan: RunPlan) -> list[tuple[str, Any]]:
    search = max(model.search_seconds for model in plan.models)
    lines = [
        ("data", f"{plan.rows:,} rows, {plan.features} features, {_size(plan.matrix_bytes)} as a matrix"),
        ("trials", f"{plan.trials}"),
        ("time", f"about {_duration(plan.seconds)}, of them for the search {_duration(search)} at most"),
        ("memory", f"about {_size(plan.memory_bytes)}"),
    ]
    for model in plan.models:
        lines += [
            ("model", model.name),
            ("engine", f"{model.engine} ({model.why})" if model.why else model.engine),
            ("searched", ", ".join(model.searched) or "nothing"),
            ("largest fit", f"about {_duration(model.fit_seconds)}"),
            ("largest model", f"about {_size(model.model_bytes)} in Triton"),
        ]
    return lines


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def _duration(seconds: float) -> str:
    if seconds < 10:
        return f"{max(seconds, 0.1):.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
