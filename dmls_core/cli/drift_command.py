"""``dmls drift``: compare new data with the training data of the served model.

Like a linter, it exits with 1 if something has drifted, else with 0, even with too few rows. It also exits
with 1 if the data cannot be compared; then it prints nothing on stdout.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from dmls_core.cli.console import out, print_json
from dmls_core.cli.options import DataArguments, JobArgument, JobName, JsonOption, parse_job
from dmls_core.errors import NotFoundError, UserError, ValidationIssue
from dmls_core.settings import load_settings

if TYPE_CHECKING:
    from dmls_core.monitoring import Drift
    from dmls_core.store import Store

SHOWN = 20
"""Number of columns printed; the page has all."""

DRIFTED = 1
"""Exit code if something drifted."""


def drift(
    job: JobArgument,
    data: Annotated[list[Path], DataArguments],
    page: Annotated[Path, typer.Option("--out", metavar="FILE", help="The HTML page to write.")] = Path(
        "drift.html"
    ),
    as_json: JsonOption = False,
) -> None:
    """Compare new data with the training data of the served model. The exit code is 1 if it has drifted."""
    from dmls_core.cli.job_commands import open_root
    from dmls_core.monitoring import check_files, drift_page, fetch_baseline
    from dmls_core.serving import checkpoint
    from dmls_core.store import layout
    from dmls_core.tracking import find_champion

    name = parse_job(job)
    store = open_root()
    threshold = _threshold(store, name)
    run_key = find_champion(load_settings().require("mlflow_uri"), layout.model_name(*name)).run_key
    with TemporaryDirectory(prefix="dmls-drift-") as scratch:
        model = fetch_baseline(store, *name, run_key, Path(scratch))
        found = check_files(
            model, data, threshold, lambda path, rows: checkpoint.predict(checkpoint.load(path), rows)
        )
    try:
        page.write_text(drift_page(found, str(name)), encoding="utf-8", errors="replace")
    except OSError as error:
        raise UserError(ValidationIssue(f"cannot be written: {error.strerror}", file=str(page))) from error
    if as_json:
        print_json(found.as_json(team=name.team, job=name.name, run_key=run_key))
    else:
        _print(found)
        out.print(f"page: {escape(str(page))}")
    if found.verdict == "drifted":
        raise typer.Exit(DRIFTED)


def _threshold(store: Store, name: JobName) -> float:
    """Return the threshold of the job's spec, or the default if it has no ``[drift]``.

    Raises:
        NotFoundError: there is no such job.
    """
    from dmls_core.spec import Drift
    from dmls_core.store import Registry

    record = Registry(store).job(*name)
    if record is None:
        raise NotFoundError(ValidationIssue(f"there is no job {name}", hint="`dmls jobs` lists them"))
    table = Registry(store).spec(record.spec_sha256).get("drift") or {}
    return float(table.get("threshold", Drift().threshold))


def _print(found: Drift) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("COLUMN", "ROLE", "", "INDEX", "CORRECTED P", "LARGEST CHANGE"):
        table.add_column(
            heading, overflow="fold", justify="right" if heading in ("INDEX", "CORRECTED P") else "left"
        )
    for column in found.columns[:SHOWN]:
        table.add_row(
            escape(column.name),
            column.role,
            f"[yellow]{column.verdict}[/]" if column.verdict == "drifted" else column.verdict,
            "" if column.psi is None else f"{column.psi:.3f}",
            "" if column.q_value is None else f"{column.q_value:.2g}",
            escape(column.change),
        )
    out.print(table, soft_wrap=False)
    if (more := len(found.columns) - SHOWN) > 0:
        out.print(f"and {more:,} more columns on the page")
    out.print(escape(found.summary))
