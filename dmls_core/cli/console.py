"""Arguments of commands, answers on stdout, progress and errors on stderr."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

import typer
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from dmls_core.errors import DmlsError, UserError, ValidationIssue
from dmls_core.settings import ProcessSettings
from dmls_core.visible_text import visible, visible_lines


class SafeConsole(Console):
    """A console that shows what a terminal would obey as escapes, and ``:id:`` in a name as it is."""

    def render_str(self, text: str, **options: Any) -> Text:  # noqa: ANN401 - those of rich
        """Render a text: every one that is printed passes here, also those in tables."""
        return super().render_str(visible_lines(text), **options)


out = SafeConsole(soft_wrap=True, highlight=False, emoji=False)
"""For answers. Lines are wrapped only on a terminal."""

err = SafeConsole(stderr=True, soft_wrap=True, highlight=False, emoji=False)
"""For progress and errors."""


def literal(text: object) -> str:
    """Return markup that shows the text of a user as it is, on one line."""
    return escape(visible(str(text)))


def print_json(content: object) -> None:
    """Print ``content`` as JSON on stdout."""
    text = json.dumps(content, indent=2, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
        plain = text == visible_lines(text)
    except UnicodeEncodeError:  # the terminal's encoding lacks a character, or a file name has none
        plain = False
    if not plain:
        text = json.dumps(content, indent=2)
    print(text)  # noqa: T201 - rich would color it


def say(text: str) -> None:
    """Print a line of progress on stderr."""
    err.print(text, markup=False)


def print_error(error: DmlsError) -> None:
    """Print an error; those of users with the place and hint of each issue."""
    if isinstance(error, UserError):
        _print_issues(error.issues)
    else:
        err.print(f"[bold red]error:[/] {escape(str(error))}")


def print_crash(error: BaseException) -> None:
    """Print an unexpected error in one line."""
    err.print(f"[bold red]internal error:[/] {literal(f'{type(error).__name__}: {error}')}")
    err.print("set DMLS_DEBUG=1 for the stack trace")


def _print_issues(issues: Iterable[ValidationIssue]) -> None:
    """Print issues with place, key, message and hint."""
    issues = tuple(issues)
    for issue in issues:
        err.print(describe(issue))
    if len(issues) > 1:
        err.print(f"[bold]{len(issues)} issues[/]")


def describe(issue: ValidationIssue) -> str:
    """Return an issue with rich markup: ``file:line:column: key: message``, then the hint."""
    position = ":".join(str(part) for part in (issue.file, issue.line, issue.column) if part)
    text = f"[bold]{literal(position)}:[/] " if position else ""
    text += "[bold red]error:[/] "
    text += f"[cyan]{literal(issue.key)}[/]: " if issue.key else ""
    text += literal(issue.message)
    for word, value in (("found", issue.found), ("expected", issue.expected), ("hint", issue.hint)):
        if value and value not in issue.message:
            text += f"\n    [green]{word}:[/] {literal(value)}"
    return text


def debugging() -> bool:
    """Return whether stack traces are enabled (``DMLS_DEBUG``)."""
    return ProcessSettings.from_environment().debug not in ("", "0")


def facts(rows: Iterable[tuple[str, Any]]) -> None:
    """Print names and values in two columns, without rows that have no value; a list has a line for each."""
    shown = [(name, value) for name, value in rows if value not in (None, "", [])]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        first, *more = value if isinstance(value, list) else [value]
        out.print(f"[bold]{escape(name):<{width}}[/]  {literal(first)}")
        for line in more:
            out.print(f"{'':<{width}}  {literal(line)}")


@contextmanager
def share_bar(label: str) -> Iterator[Callable[[float], None]]:
    """Show a progress bar on a terminal; yield a function that sets the progress, from 0 to 1."""
    if not err.is_terminal:
        yield lambda _: None
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(label, total=1.0)
        yield lambda share: bar.update(task, completed=share)


class StepLines:
    """Prints a line for each finished step; on a terminal, also the running steps.

    The threads that run the steps call it.
    """

    def __init__(self) -> None:
        from rich.status import Status

        self._running: list[str] = []
        self._status = Status("", console=err) if err.is_terminal else None

    def __enter__(self) -> Self:
        if self._status:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status:
            self._status.stop()

    def __call__(self, name: str, state: str, seconds: float) -> None:
        """Report a step's state (``starting``, ``ready`` or ``failed``) and duration."""
        if state == "starting":
            self._running.append(name)
        else:
            if name in self._running:
                self._running.remove(name)
            status = "[green]ready[/] " if state == "ready" else "[red]failed[/]"
            err.print(f"  {status} {name:<22} {seconds:5.1f} s")
        if self._status:
            self._status.update(f"starting {', '.join(self._running)}" if self._running else "")


_SPEC = typer.Argument(metavar="SPEC", exists=True, dir_okay=False, help="The spec: a TOML file.")
SpecArgument = Annotated[Path, _SPEC]
OptionalSpecArgument = Annotated[Path | None, _SPEC]
DataArguments = typer.Argument(
    metavar="DATA...",
    exists=True,
    dir_okay=False,
    help="Data files: CSV, Parquet or Excel.",
    show_default=False,
)
FilesArguments = typer.Argument(
    metavar="DATA...",
    exists=True,
    help="Data files (CSV, Parquet or Excel), or folders of them, such as partitions.",
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
