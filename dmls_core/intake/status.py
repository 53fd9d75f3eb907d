"""What DMLS answers to a drop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from dmls_core.errors import ValidationIssue

SCHEMA = 1
State = Literal["waiting", "rejected", "accepted", "running", "awaiting approval", "deployed", "failed"]


@dataclass(frozen=True, slots=True)
class Status:
    """What ``_status.json`` says.

    Attributes:
        state: how far the submission has come.
        message: the same in the user's words.
        job: ``<team>/<job>`` as it was dropped.
        errors: what is wrong, where and how to mend it.
        run_key: of the run that the submission asked for, once accepted.
        links: name -> address, of pages about the run.
        fingerprint: of the submission that this answers.
        updated: ISO time in UTC.
        run: key of the run that this tells of, where each run chooses its data itself; else empty.
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

    @property
    def run_folder_key(self) -> str | None:
        """Key of the run whose folder holds what this tells of."""
        return self.run or self.run_key

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object of ``_status.json``."""
        errors = [issue.as_json() for issue in self.errors]
        return {"schema": SCHEMA, **asdict(self), "errors": errors, "links": dict(self.links)}

    @classmethod
    def from_json(cls, content: object) -> Status:
        """Build a status from what ``as_json`` returned.

        Raises:
            ValueError: it is something else.
        """
        if not isinstance(content, dict) or content.get("schema") != SCHEMA:
            raise ValueError("not a status of a known schema")
        try:
            content = {"run": "", **content}  # earlier releases know no runs that choose their data
            values = {name.name: content[name.name] for name in fields(cls)}
            status = cls(**values | {"errors": tuple(map(as_issue, values["errors"]))})
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a status: {error}") from error
        _check(status)
        return status


def _check(status: Status) -> None:
    """Hold a status that was read against its types: users may write where it lies, and pages show it.

    Raises:
        ValueError: it is none.
    """
    texts: list[object] = [status.message, status.job, status.fingerprint, status.updated, status.run]
    texts += [status.run_key or ""]
    numbers: list[object] = []
    for issue in status.errors:
        texts += [issue.message, issue.hint, issue.file, issue.key, issue.found, issue.expected]
        numbers += [issue.line, issue.column]
    if status.state not in get_args(State) or not isinstance(status.links, dict):
        raise ValueError("not a status: unknown state or links")
    for text in (*texts, *status.links, *status.links.values()):
        if not isinstance(text, str):
            raise ValueError(f"not a status: {text!r} is no text")
        text.encode()  # no half of a surrogate pair, which no answer could hold
    for number in numbers:
        if number is not None and type(number) is not int:
            raise ValueError(f"not a status: {number!r} is no place")
    try:
        if status.updated:
            datetime.fromisoformat(status.updated).astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"not a status: {error}") from error


def as_issue(issue: ValidationIssue | Mapping[str, Any]) -> ValidationIssue:
    """Return an issue from its JSON form; keys that are not known are left out.

    Raises:
        TypeError: it has no message.
    """
    if isinstance(issue, ValidationIssue):
        return issue
    known = {name.name for name in fields(ValidationIssue)}
    return ValidationIssue(**{name: value for name, value in issue.items() if name in known})
