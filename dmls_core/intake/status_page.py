"""``_status.md``: the answer to a drop as a page for people."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from dmls_core.errors import ValidationIssue

if TYPE_CHECKING:
    from dmls_core.intake.status import Status

MAX_TEXT = 600
"""Characters of one text of the user's that are shown."""

MAX_ERRORS = 50
"""Errors that are shown; ``_status.json`` has more."""

_HEADLINES = {
    "waiting": "Something is missing yet.",
    "rejected": "This drop cannot be trained as it is. Mend it and drop it again.",
    "accepted": "The drop is in order; training starts by itself.",
    "running": "The job is running.",
    "awaiting approval": "The model is ready and waits for somebody to approve it.",
    "deployed": "The model is served.",
    "failed": "The run failed.",
}

# An underscore within a word is no markup: escaping it would spoil every column's name.
_MARKUP = re.compile(r"[\\`*\[\]|~]|(?<![^\W_])_|_(?![^\W_])")
_LINE_START = re.compile(r"^(\s*)([#>+=-]|\d+[.)])")


def status_page(status: Status) -> str:
    """Return the page; whatever came from the user is shown as plain text."""
    lines = [
        f"# {escape(status.job) or 'Drop'}: {status.state}",
        "",
        _HEADLINES[status.state],
        "",
        escape(status.message),
        "",
    ]
    if status.errors:
        lines += ["| where | what is wrong | what would help |", "| --- | --- | --- |"]
        lines += [_row(issue) for issue in status.errors[:MAX_ERRORS]]
        if (more := len(status.errors) - MAX_ERRORS) > 0:
            lines += ["", f"{more} more are in `_status.json`."]
        lines += [""]
    if status.links:
        lines += [f"- {escape(name)}: {_address(str(link))}" for name, link in sorted(status.links.items())]
        lines += [""]
    if status.run_folder_key:
        lines += [f"Run: `{status.run_folder_key}`", ""]
    lines += [f"Updated {status.updated}. DMLS writes this file; to get a new answer, drop a file again.", ""]
    return "\n".join(lines)


def escape(text: str) -> str:
    """Return ``text`` as one line of Markdown that shows it literally, hidden characters included."""
    shown = "".join(map(_visible, text[:MAX_TEXT])) + ("..." if len(text) > MAX_TEXT else "")
    shown = shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _LINE_START.sub(r"\1\\\2", _MARKUP.sub(r"\\\g<0>", shown))


def _visible(character: str) -> str:
    if character in "\r\n\t":
        return " "
    if unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"}:
        return f"U+{ord(character):04X}"
    return character


def _row(issue: ValidationIssue) -> str:
    place = issue.file
    if issue.line:
        place += f", line {issue.line}" if place else f"line {issue.line}"
    if issue.column:
        place += f", column {issue.column}"
    if issue.key:
        place += f" ({issue.key})" if place else issue.key
    wrong = issue.message
    if issue.found:
        wrong += f"; found: {issue.found}"
    if issue.expected:
        wrong += f"; expected: {issue.expected}"
    return f"| {escape(place)} | {escape(wrong)} | {escape(issue.hint)} |"


def _address(link: str) -> str:
    parts = urlsplit(link) if link.isprintable() and not re.search(r"[\s<>]", link) else None
    return f"<{link}>" if parts and parts.scheme in {"http", "https"} and parts.netloc else escape(link)
