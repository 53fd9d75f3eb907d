"""What the commands print: answers on stdout, progress and errors on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.markup import escape

from dmls_core.errors import DmlsError, UserError, ValidationIssue
from dmls_core.settings import ProcessSettings

out = Console(soft_wrap=True, highlight=False)
"""For answers. Lines are never wrapped where nobody looks at a terminal."""

err = Console(stderr=True, soft_wrap=True, highlight=False)
"""For progress and errors."""


def print_json(content: object) -> None:
    """Print ``content`` as JSON on stdout, for a program to read."""
    text = json.dumps(content, indent=2, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:  # the terminal's encoding, or a file name that is no text, cannot say it
        text = json.dumps(content, indent=2)
    print(text)  # noqa: T201 - rich would colour it


def say(text: str) -> None:
    """Print a line of progress on stderr."""
    err.print(text, markup=False)


def print_error(error: DmlsError) -> None:
    """Print what is wrong, as the user needs it to mend it."""
    if isinstance(error, UserError):
        print_issues(error.issues)
    else:
        err.print(f"[bold red]error:[/] {escape(str(error))}")


def print_crash(error: BaseException) -> None:
    """Print one line on an error that nobody foresaw."""
    err.print(f"[bold red]internal error:[/] {escape(f'{type(error).__name__}: {error}')}")
    err.print("set DMLS_DEBUG=1 for the stack trace")


def print_issues(issues: Iterable[ValidationIssue]) -> None:
    """Print issues one by one: place, key, message, hint."""
    issues = tuple(issues)
    for issue in issues:
        err.print(describe(issue))
    if len(issues) > 1:
        err.print(f"[bold]{len(issues)} issues[/]")


def describe(issue: ValidationIssue) -> str:
    """Return an issue as text with rich's markup: ``file:line:column: key: message``, then the hint."""
    place = ":".join(str(part) for part in (issue.file, issue.line, issue.column) if part)
    text = f"[bold]{escape(place)}:[/] " if place else ""
    text += "[bold red]error:[/] "
    text += f"[cyan]{escape(issue.key)}[/]: " if issue.key else ""
    text += escape(issue.message)
    for word, value in (("found", issue.found), ("expected", issue.expected), ("hint", issue.hint)):
        if value and value not in issue.message:
            text += f"\n    [green]{word}:[/] {escape(value)}"
    return text


def debugging() -> bool:
    """Return whether the user asked for stack traces."""
    return ProcessSettings.from_environment().debug not in ("", "0")


def ago(seconds: float) -> str:
    """Return a duration in words: ``12 s``, ``3 min``, ``5 h``, ``2 days``."""
    for size, word in ((172800.0, "days"), (7200.0, "h"), (120.0, "min")):
        if seconds >= size:
            unit = {"days": 86400.0, "h": 3600.0, "min": 60.0}[word]
            return f"{seconds / unit:.0f} {word}"
    return f"{max(0.0, seconds):.0f} s"


def facts(rows: Iterable[tuple[str, Any]]) -> None:
    """Print names and values in two columns; rows without a value are left out."""
    shown = [(name, str(value)) for name, value in rows if value not in (None, "")]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        first, *more = value.splitlines() or [""]
        out.print(f"[bold]{escape(name):<{width}}[/]  {escape(first)}")
        for line in more:
            out.print(f"{'':<{width}}  {escape(line)}")
