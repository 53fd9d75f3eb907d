"""``dmls submit``, ``jobs``, ``show``, ``logs``, ``pause``, ``resume``, ``retire``: jobs and their runs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from dmls_core.cli.console import (
    FilesArguments,
    JobArgument,
    JsonOption,
    SpecArgument,
    err,
    facts,
    literal,
    out,
    parse_job,
    print_json,
    say,
)
from dmls_core.errors import NotFoundError, PlatformError, UserError, ValidationIssue
from dmls_core.html.formats import ago
from dmls_core.settings import DEFAULT_TEAM, Settings, load_settings

if TYPE_CHECKING:
    from rich.table import Table

    from dmls_core.cli.job_view import ListedJob
    from dmls_core.intake import Status
    from dmls_core.store import Store

WAIT_SECONDS = 24 * 3600.0

_MESSAGE_WIDTH = 30
"""Least characters of the column of messages: in a narrower terminal, they follow the table."""

_COLORS = {
    "waiting": "yellow",
    "rejected": "red",
    "accepted": "cyan",
    "trained": "cyan",
    "running": "blue",
    "awaiting approval": "magenta",
    "deployed": "green",
    "stopped": "yellow",
    "failed": "red",
}


def submit(
    spec: SpecArgument,
    data: Annotated[list[Path] | None, FilesArguments] = None,
    team: Annotated[str, typer.Option(envvar="DMLS_TEAM", help="The team that owns the job.")] = DEFAULT_TEAM,
    name: Annotated[
        str | None,
        typer.Option(
            help="Name of the job. Default: the name of the spec file, or of its folder if it is spec.toml."
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the run ends or asks for approval.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Upload a spec and its data, as any S3 client would, and print what admission answers.

    A spec that names a source has no files.
    """
    from dmls_core.cli.spec_commands import check_files, print_notes
    from dmls_core.intake.data_files import check_folder

    job, files = name or job_name(spec), data or []
    checked, _, notes = check_files(spec, files)
    if not files and not checked.data.source:
        raise typer.BadParameter("name the data files", param_hint="DATA...")
    store = open_root()
    check_folder(store, checked, team, job, files)
    fingerprint = upload(store, spec, files, team, job)
    if not as_json:
        out.print(f"uploaded [bold]{team}/{job}[/] to {literal(store.url)}")
        print_notes(notes)
    if not wait:
        _print_answer(store, team, job, fingerprint, as_json=as_json)
        return
    status = follow(store, team, job, fingerprint=fingerprint, seconds=WAIT_SECONDS, show=print_step)
    if as_json:
        print_json(status.as_json())
    elif status.state == "awaiting approval":
        out.print(f"approve it in Airflow, or with: dmls approve {team}/{job}")
    raise_for(status)


def _print_answer(store: Store, team: str, job: str, fingerprint: str, *, as_json: bool) -> None:
    """Print what admission answers to an upload, if it does in time; raise ``UserError`` for a rejection."""
    with err.status("waiting for admission"):
        status = _answer_to(store, team, job, fingerprint, ANSWER_SECONDS)
    if as_json:
        folder = f"{store.url}/incoming/{team}/{job}/"
        answer = status.as_json() if status else None
        print_json({"schema": 1, "job": f"{team}/{job}", "folder": folder, "status": answer})
    elif status:
        _print_state(status, status.summary if status.state == "rejected" else status.message)
    else:
        err.print(
            f"Admission has not answered within {ANSWER_SECONDS:.0f} s: does the platform run? "
            f"`dmls show {team}/{job}` prints its answer."
        )
    if status and status.state == "rejected":
        raise_for(status)


def list_jobs(as_json: JsonOption = False) -> None:
    """List the jobs and their states."""
    from dmls_core.cli.job_view import job_rows

    rows = job_rows(open_root(), load_settings())
    if as_json:
        print_json({"schema": 1, "jobs": [asdict(row) for row in rows]})
        return
    if not rows:
        out.print("no jobs yet: upload a spec and its data, for example with `dmls submit`")
        return
    from rich.measure import Measurement

    messages = [literal(row.queue.text if row.queue else row.message) for row in rows]
    table = _job_table(rows)
    if Measurement.get(out, out.options, table).maximum + _MESSAGE_WIDTH <= out.width:
        out.print(_job_table(rows, messages), soft_wrap=False)
        return
    out.print(table, soft_wrap=False)
    for row, message in zip(rows, messages, strict=True):
        if row.state != "deployed":
            out.print(f"{literal(row.job)}: {message}")


def _job_table(rows: Sequence[ListedJob], messages: Sequence[str] = ()) -> Table:
    """Return the table of jobs, with a column of messages if there are any."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("JOB", "STATE", "VERSION", "SERVED", "UPDATED", *(["MESSAGE"] if messages else [])):
        # A folder that people uploaded may have a name wider than the terminal.
        table.add_column(heading, no_wrap=heading not in ("JOB", "MESSAGE"), overflow="fold")
    for row, *message in zip(rows, *([messages] if messages else []), strict=True):
        color = _COLORS.get(row.state, "default")
        served = f"version {row.served.version}" if row.served else ""
        state, version = f"[{color}]{row.state}[/]", str(row.version or "")
        state += ", [yellow]paused[/]" if row.paused else ""
        table.add_row(literal(row.job), state, version, served, ago(row.updated), *message)
    return table


def show(job: JobArgument, as_json: JsonOption = False) -> None:
    """Show a job: its state, spec and data, and the result of its run."""
    from dmls_core.cli.job_view import describe_job

    view = describe_job(open_root(), parse_job(job), load_settings())
    if as_json:
        print_json(view.as_json())
        return
    facts(view.facts())
    for issue in view.issues:
        from dmls_core.cli.console import describe

        out.print(describe(issue))


def logs(
    job: JobArgument,
    task: Annotated[str | None, typer.Option(help="Only this task, for example search.")] = None,
) -> None:
    """Print the logs of a job's latest run by task."""
    from dmls_core.cli.job_view import JobRuns

    team, name = parse_job(job)
    runs = JobRuns(load_settings(), team, name)
    run = runs.latest()
    tasks = runs.tasks(run)
    names = sorted({instance.task_id for instance in tasks})
    if task and task not in names:
        raise NotFoundError(
            ValidationIssue(f"the run has no task {task!r}", hint=f"its tasks: {', '.join(names)}")
        )
    for instance in tasks:
        if (task and instance.task_id != task) or instance.try_number == 0:
            continue
        number = "" if instance.map_index < 0 else f" {instance.map_index}"
        out.rule(f"{instance.task_id}{number}: {instance.state}, try {instance.try_number}", style="dim")
        for line in runs.log(run, instance):
            out.print(line, markup=False)


def pause(job: JobArgument, as_json: JsonOption = False) -> None:
    """Pause a job: Airflow starts no run or task of it. A trainer at work goes on."""
    _command(job, "pause", {"paused": True}, as_json=as_json)


def resume(job: JobArgument, as_json: JsonOption = False) -> None:
    """Resume a paused job."""
    _command(job, "pause", {"paused": False}, as_json=as_json)


def retire(job: JobArgument, as_json: JsonOption = False) -> None:
    """Retire a job: delete its spec, so that no run starts. Its history and the served model stay."""
    _command(job, "retire", None, as_json=as_json)


def _command(job: str, command: str, body: object, *, as_json: bool) -> None:
    """Send a command of the REST API, which checks the user's access and records it, and print its answer."""
    from dmls_core.cli.job_view import airflow_client

    team, name = parse_job(job)
    rest = airflow_client(load_settings())
    path = f"/dmls/api/v1/jobs/{quote(team, safe='')}/{quote(name, safe='')}/{command}"
    message = rest.call("POST", path, body)["message"]
    if as_json:
        print_json({"schema": 1, "job": f"{team}/{name}", "message": message})
    else:
        out.print(f"{literal(f'{team}/{name}')}: {literal(message)}")


def open_root() -> Store:
    """Open the store of the settings; raise ``PlatformError`` for a folder that does not exist."""
    from dmls_core.store import open_store

    store = open_store(load_settings().require("root"))
    if store.local and not os.path.isdir(store.url):  # noqa: PTH112  Path's fails for a name that is too long
        raise PlatformError(
            f"{Settings.variable('root')}: there is no folder {store.url}; correct it, or create the folder"
        )
    return store


def accepted_spec(store: Store, team: str, job: str) -> dict[str, Any] | None:
    """Return a job's accepted spec as JSON data, or None if the job does not exist."""
    from dmls_core.store import Registry

    record = Registry(store).job(team, job)
    return None if record is None else Registry(store).spec(record.spec_sha256)


def print_step(status: Status) -> None:
    """Print a status as a line; of a failure only what ``raise_for`` does not say."""
    _print_state(status, "" if status.state == "failed" and not status.errors else status.summary)


def _print_state(status: Status, message: str) -> None:
    color = _COLORS.get(status.state, "default")
    err.print(f"  [{color}]{status.state:<17}[/] {literal(message)}".rstrip())


def raise_for(status: Status) -> None:
    """Raise a status's error, if any: ``UserError`` if the submission is at fault, else ``PlatformError``."""
    if status.state == "rejected" or (status.state == "failed" and status.errors):
        raise UserError(status.errors or status.message)
    if status.state == "failed":
        raise PlatformError(status.message)


def job_name(spec: Path) -> str:
    """Return the job name for a spec's path: ``iris`` for ``iris/spec.toml`` and ``iris.toml``."""
    stem = spec.absolute().parent.name if spec.stem == "spec" else spec.stem
    return stem.lower()


_PAUSE = 0.5
"""Seconds between two reads of ``_status.json``."""

ANSWER_SECONDS = 60.0
"""Time for which ``dmls submit`` waits for the answer of admission, which takes some seconds."""

_ENDED = ("rejected", "trained", "deployed", "stopped", "failed")


def upload(store: Store, spec: Path, data: Sequence[Path], team: str, name: str) -> str:
    """Upload a submission as any S3 client would, and return its fingerprint.

    Raises ``SubmissionError`` before any upload if a name is invalid or a file is missing.
    """
    from dmls_core.intake import group_submissions, submit
    from dmls_core.store import layout

    submit(store, spec, data, team, name)
    listing = store.list(layout.incoming_folder(team, name))
    return next(submission.fingerprint for submission in group_submissions(listing) if submission.job == name)


def _answer_to(store: Store, team: str, name: str, fingerprint: str, seconds: float) -> Status | None:
    """Wait until the status of a submission is about a fingerprint; return ``None`` after ``seconds``."""
    from dmls_core.intake import read_status

    end = time.monotonic() + seconds
    while True:
        status = read_status(store, team, name)
        if status and status.fingerprint == fingerprint:
            return status
        if time.monotonic() > end:
            return None
        time.sleep(_PAUSE)


def follow(
    store: Store,
    team: str,
    name: str,
    *,
    fingerprint: str,
    seconds: float,
    show: Callable[[Status], None],
    pause_at: tuple[str, ...] = ("awaiting approval",),
) -> Status:
    """Wait until a submission's run has ended or has a state of ``pause_at``, and return the last status.

    Statuses of earlier submissions are ignored; a later one ends the wait. ``show`` is called with every new
    status. Raises ``PlatformError`` after ``seconds``.
    """
    from dmls_core.intake import read_status

    end = time.monotonic() + seconds
    shown: tuple[str, str] | None = None
    last: Status | None = None
    while True:
        status = read_status(store, team, name)
        if last and status and status.fingerprint != fingerprint:
            say(f"a later submission has replaced this one: `dmls show {team}/{name}` describes it")
            return last
        if status and status.fingerprint == fingerprint:
            last = status
            answered = status.state == "awaiting approval" and status.state not in pause_at
            if (status.state, status.message) != shown and not answered:
                shown = (status.state, status.message)
                show(status)
            if status.state in (*_ENDED, *pause_at):
                return status
        if time.monotonic() > end:
            state = f"{status.state}: {status.message}" if status else "it has no status yet"
            raise PlatformError(f"{team}/{name} has not ended after {seconds:.0f} s ({state})")
        time.sleep(_PAUSE)
