"""The status of a submission, as ``_status.json`` and as the page ``_status.md``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from dmls_core.errors import ValidationIssue
from dmls_core.store import ServedModel
from dmls_core.visible_text import visible

_SCHEMA = 1
State = Literal[
    "waiting",
    "rejected",
    "accepted",
    "running",
    "awaiting approval",
    "trained",
    "deployed",
    "stopped",
    "failed",
]

NOT_DEPLOYED = "trained and registered as version {version} in MLflow, not deployed: {reason}"
"""Message of a run that ended without a deployment, by a rule or because a person declined it."""

_NOT_DEPLOYED_START = NOT_DEPLOYED.partition("{")[0]


@dataclass(frozen=True, slots=True)
class Status:
    """The content of ``_status.json``.

    Attributes:
        job: ``<team>/<job>`` as in the folder names.
        run_key: key of the run of the accepted submission.
        links: name -> URL of pages about the run.
        updated: ISO time in UTC.
        run: key of the latest run if each run selects its own data; else empty.
        notes: what the user should know of the data, whatever the run does.
        served: what is served now, whatever the latest run does: version, score, and since when.
        environment: of a rejection, a hash of the installed packages and the limits that it depends on;
            empty if it depends on more, such as a connection.
    """

    state: State
    message: str
    job: str
    errors: tuple[ValidationIssue, ...] = ()
    run_key: str | None = None
    links: Mapping[str, str] = field(default_factory=dict)
    fingerprint: str = ""
    updated: str = ""
    run: str = ""
    served: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()
    environment: str = ""

    @property
    def run_folder_key(self) -> str | None:
        """Return the key of the run that the status describes."""
        return self.run or self.run_key

    @property
    def summary(self) -> str:
        """The message without the first of the errors, for those who see all errors below it."""
        if not self.errors:
            return self.message
        start, error, _ = self.message.partition(str(self.errors[0])[:_COMPARED])
        return start.rstrip(": ").removesuffix("; the first") if error else self.message

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object of ``_status.json``."""
        errors = [issue.as_json() for issue in self.errors]
        lists = {"errors": errors, "links": dict(self.links), "notes": list(self.notes)}
        return {"schema": _SCHEMA, **asdict(self), **lists}

    @classmethod
    def from_json(cls, content: object) -> Status:
        """Build a status from the result of ``as_json``; raise ``ValueError`` if it is invalid."""
        if not isinstance(content, dict) or content.get("schema") != _SCHEMA:
            raise ValueError("not a status of a known schema")
        try:
            # Earlier releases have none.
            content = {"run": "", "served": None, "notes": [], "environment": "", **content}
            values = {name.name: content[name.name] for name in fields(cls)}
            errors = tuple(map(as_issue, values["errors"]))
            status = cls(**values | {"errors": errors, "notes": tuple(values["notes"])})
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a status: {error}") from error
        _check(status)
        # Earlier releases had no state for such a run.
        if status.state == "accepted" and status.message.startswith(_NOT_DEPLOYED_START):
            return replace(status, state="trained")
        return status


def _check(status: Status) -> None:
    """Raise ``ValueError`` if a type is wrong: users can write the file, and pages show it."""
    texts: list[object] = [status.message, status.job, status.fingerprint, status.updated, status.run]
    texts += [status.run_key or "", status.environment, *status.notes]
    numbers: list[object] = []
    for issue in status.errors:
        texts += [issue.message, issue.hint, issue.file, issue.key, issue.found, issue.expected]
        numbers += [issue.line, issue.column]
    if (
        status.state not in get_args(State)
        or not isinstance(status.links, dict)
        or (status.served is not None and not isinstance(status.served, dict))
    ):
        raise ValueError("not a status: unknown state, links or served")
    for text in (*texts, *status.links, *status.links.values()):
        if not isinstance(text, str):
            raise ValueError(f"not a status: {text!r} is not a text")
        text.encode()  # a lone surrogate could not be written again
    for number in numbers:
        if number is not None and type(number) is not int:
            raise ValueError(f"not a status: {number!r} is not a line or column")
    try:
        if status.updated:
            datetime.fromisoformat(status.updated).astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"not a status: {error}") from error


def as_issue(issue: ValidationIssue | Mapping[str, Any]) -> ValidationIssue:
    """Build an issue from its JSON form, without unknown keys; raise ``TypeError`` if it has no message."""
    if isinstance(issue, ValidationIssue):
        return issue
    names = {name.name for name in fields(ValidationIssue)}
    return ValidationIssue(**{name: value for name, value in issue.items() if name in names})


_MAX_SHOWN = 600
"""Characters of a text on the page."""

_MAX_ERRORS = 50
"""Errors on the page; ``_status.json`` may have more."""

CHECKING = "DMLS is checking the files."
"""Message of a submission whose check takes long."""

_COMPARED = 80
"""Characters by which the first error is recognized in a message, which may be cut off."""

_HEADLINES = {
    "waiting": "A file is still missing.",
    "rejected": "The submission has errors. Fix them and upload it again.",
    "accepted": "The submission is accepted; training starts automatically.",
    "running": "The job is running.",
    "awaiting approval": "The model is ready and waits for approval.",
    "trained": "The model is trained, and not deployed.",
    "deployed": "The model is served.",
    "stopped": "The model is no longer served.",
    "failed": "The run failed.",
}

# An underscore inside a word is not markup: escaping it would spoil column names.
_MARKUP = re.compile(r"[\\`*\[\]|~]|(?<![^\W_])_|_(?![^\W_])")
_LINE_START = re.compile(r"^(\s*)([#>+=-]|\d+[.)])")


def status_page(status: Status) -> str:
    """Return the page in Markdown, with the user's texts escaped."""
    lines = [
        f"# {escape(status.job) or 'Submission'}: {status.state}",
        "",
        _HEADLINES[status.state] if status.message != CHECKING else "The answer follows.",
        "",
        escape(status.summary),
        "",
    ]
    if status.errors:
        lines += ["| place | error | hint |", "| --- | --- | --- |"]
        lines += [_row(issue) for issue in status.errors[:_MAX_ERRORS]]
        if (more := len(status.errors) - _MAX_ERRORS) > 0:
            lines += ["", f"{more} more are in `_status.json`."]
        lines += [""]
    if status.notes:
        lines += ["About the data:", "", *(f"- {escape(note)}" for note in status.notes), ""]
    if status.links:
        lines += [f"- {escape(name)}: {_address(str(link))}" for name, link in sorted(status.links.items())]
        lines += [""]
    if status.served:
        served = ServedModel.from_json(status.served)
        lines += [escape(f"Served: {served.text}"), ""]
    if status.run_folder_key:
        lines += [f"Run: `{status.run_folder_key}`", ""]
    lines += [
        f"Updated {status.updated}. DMLS writes this file. Upload a file to have it checked again.",
        "",
    ]
    return "\n".join(lines)


def escape(text: str) -> str:
    """Return one line of Markdown that shows ``text`` literally, including hidden characters."""
    shown = visible(text[:_MAX_SHOWN]) + ("..." if len(text) > _MAX_SHOWN else "")
    shown = shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _LINE_START.sub(r"\1\\\2", _MARKUP.sub(r"\\\g<0>", shown))


def _row(issue: ValidationIssue) -> str:
    location = issue.file
    if issue.line:
        location += f", line {issue.line}" if location else f"line {issue.line}"
    if issue.column:
        location += f", column {issue.column}"
    if issue.key:
        location += f" ({issue.key})" if location else issue.key
    wrong = issue.message
    if issue.found:
        wrong += f"; found: {issue.found}"
    if issue.expected:
        wrong += f"; expected: {issue.expected}"
    return f"| {escape(location)} | {escape(wrong)} | {escape(issue.hint)} |"


def _address(link: str) -> str:
    parts = urlsplit(link) if link.isprintable() and not re.search(r"[\s<>]", link) else None
    return f"<{link}>" if parts and parts.scheme in {"http", "https"} and parts.netloc else escape(link)
