"""What DMLS answers to a drop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

from dmls_core.errors import Problem

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
    errors: tuple[Problem, ...] = ()
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
        errors = [problem.as_json() for problem in self.errors]
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
            status = cls(**values | {"errors": tuple(map(as_problem, values["errors"]))})
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a status: {error}") from error
        if status.state not in get_args(State) or not isinstance(status.links, dict):
            raise ValueError("not a status: unknown state or links")
        return status


def as_problem(problem: Problem | Mapping[str, Any]) -> Problem:
    """Return a problem from its JSON form; keys that are not known are left out.

    Raises:
        TypeError: it has no message.
    """
    if isinstance(problem, Problem):
        return problem
    known = {name.name for name in fields(Problem)}
    return Problem(**{name: value for name, value in problem.items() if name in known})
