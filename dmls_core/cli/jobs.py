"""``dmls submit``, ``jobs``, ``show`` and ``logs``: what was dropped, what runs, how it went."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from dmls_core.cli.console import err, facts, out, print_json
from dmls_core.cli.options import FilesArguments, JobArgument, JsonOption, SpecArgument, parse_job
from dmls_core.errors import NotFoundError, PlatformError, UserError, ValidationIssue
from dmls_core.settings import load_settings

if TYPE_CHECKING:
    from dmls_core.intake import Status
    from dmls_core.store import Store

PANEL = "Jobs"
DEFAULT_TEAM = "default"
WAIT_SECONDS = 24 * 3600.0

COLOURS = {
    "waiting": "yellow",
    "rejected": "red",
    "accepted": "cyan",
    "running": "blue",
    "awaiting approval": "magenta",
    "deployed": "green",
    "failed": "red",
}


def register(app: typer.Typer) -> None:
    """Add this module's commands to ``dmls``."""
    app.command(rich_help_panel=PANEL)(submit)
    app.command("jobs", rich_help_panel=PANEL)(list_jobs)
    app.command(rich_help_panel=PANEL)(show)
    app.command(rich_help_panel=PANEL)(logs)


def submit(
    spec: SpecArgument,
    data: Annotated[list[Path], FilesArguments],
    team: Annotated[str, typer.Option(envvar="DMLS_TEAM", help="The team that owns the job.")] = DEFAULT_TEAM,
    name: Annotated[
        str | None,
        typer.Option(
            help="The job's name; if left out, that of the spec's file, or of its folder for spec.toml."
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the run ends or asks for approval.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Drop a spec and its data, as any S3 client would."""
    from dmls_core.cli.check import check_files
    from dmls_core.cli.follow import drop, follow

    job = name or job_name(spec)
    check_files(spec, data)
    store = open_root()
    fingerprint = drop(store, spec, data, team, job)
    if not as_json:
        out.print(f"dropped [bold]{team}/{job}[/] into {escape(store.url)}")
    if not wait:
        if as_json:
            print_json({"schema": 1, "job": f"{team}/{job}", "folder": f"{store.url}/incoming/{team}/{job}/"})
        return
    status = follow(store, team, job, fingerprint=fingerprint, seconds=WAIT_SECONDS, show=print_step)
    if as_json:
        print_json(status.as_json())
    elif status.state == "awaiting approval":
        out.print(f"approve it in Airflow, or with: dmls deploy {team}/{job}")
    raise_for(status)


def list_jobs(as_json: JsonOption = False) -> None:
    """List the jobs and what has become of each."""
    from dmls_core.cli.overview import job_rows

    rows = job_rows(open_root())
    if as_json:
        print_json({"schema": 1, "jobs": [row.as_json() for row in rows]})
        return
    if not rows:
        out.print("no jobs yet: drop a spec and its data, or try `dmls submit`")
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("JOB", "STATE", "VERSION", "UPDATED", "MESSAGE"):
        table.add_column(heading, no_wrap=heading != "MESSAGE", overflow="fold")
    for row in rows:
        colour = COLOURS.get(row.state, "default")
        version = str(row.version or "")
        table.add_row(escape(row.job), f"[{colour}]{row.state}[/]", version, row.age, escape(row.message))
    out.print(table, soft_wrap=False)


def show(job: JobArgument, as_json: JsonOption = False) -> None:
    """Show a job: its state, its spec and data, and the result of its run."""
    from dmls_core.cli.overview import describe_job

    found = describe_job(open_root(), parse_job(job))
    if as_json:
        print_json(found.as_json())
        return
    facts(found.facts())
    for issue in found.issues:
        from dmls_core.cli.console import describe

        out.print(describe(issue))


def logs(
    job: JobArgument,
    task: Annotated[str | None, typer.Option(help="One task only, such as search.")] = None,
) -> None:
    """Print the logs of a job's latest run, task by task."""
    from dmls_core.cli.airflow_api import JobRuns

    team, name = parse_job(job)
    runs = JobRuns(load_settings(), team, name)
    run = runs.latest()
    tasks = runs.tasks(run)
    names = sorted({found.task_id for found in tasks})
    if task and task not in names:
        raise NotFoundError(
            ValidationIssue(f"the run has no task {task!r}", hint=f"its tasks: {', '.join(names)}")
        )
    for found in tasks:
        if (task and found.task_id != task) or found.try_number == 0:
            continue
        number = "" if found.map_index < 0 else f" {found.map_index}"
        out.rule(f"{found.task_id}{number}: {found.state}, try {found.try_number}", style="dim")
        for line in runs.log(run, found):
            out.print(line, markup=False)


def open_root() -> Store:
    """Open the store that the settings name."""
    from dmls_core.store import open_store

    return open_store(load_settings().require("root"))


def print_step(status: Status) -> None:
    """Print one answer of the platform as a line."""
    colour = COLOURS.get(status.state, "default")
    err.print(f"  [{colour}]{status.state:<17}[/] {escape(status.message)}")


def raise_for(status: Status) -> None:
    """Raise what a submission's last answer says went wrong, if anything did.

    Raises:
        UserError: it was rejected, or failed because of what is in it.
        PlatformError: it failed otherwise.
    """
    if status.state == "rejected" or (status.state == "failed" and status.errors):
        raise UserError(status.errors or status.message)
    if status.state == "failed":
        raise PlatformError(status.message)


def job_name(spec: Path) -> str:
    """Return the name that a spec's path suggests: ``iris/spec.toml`` and ``iris.toml`` are ``iris``."""
    stem = spec.absolute().parent.name if spec.stem == "spec" else spec.stem
    return stem.lower()
