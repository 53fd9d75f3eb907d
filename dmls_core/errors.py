"""One error root, with a subclass and an exit code per kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class ValidationIssue:
    """One error in a user's input: what is wrong, where it is, and how to fix it.

    ``line`` and ``column`` count from 1; ``key`` is dotted (``n_estimators.min``); ``pointer`` is a JSON
    pointer into a request's body (``#/0/age``).

    Examples:
        >>> from dmls_core.errors import ValidationIssue
        >>> print(ValidationIssue("is not a number", file="a.csv", line=3, found="'x'", expected="a number"))
        a.csv:3: is not a number (found 'x'; expected a number)
    """

    message: str
    hint: str = ""
    file: str = ""
    line: int | None = None
    column: int | None = None
    key: str = ""
    found: str = ""
    expected: str = ""
    pointer: str = ""

    def as_json(self) -> dict[str, object]:
        """Return the object written into ``_status.json``; of a request's body, it has ``pointer``, too."""
        fields = asdict(self)
        return fields if self.pointer else {k: v for k, v in fields.items() if k != "pointer"}

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part)
        parts = [f"{place}: " if place else "", f"{self.key}: " if self.key else "", self.message]
        details = [
            f"found {self.found}" if self.found else "",
            f"expected {self.expected}" if self.expected else "",
        ]
        rest = "; ".join(part for part in (*details, self.hint) if part)
        return "".join(parts) + (f" ({rest})" if rest else "")


class DmlsError(Exception):
    """Base class of the errors that DMLS raises. ``str()`` is a message for users."""

    exit_code: ClassVar[int] = 3


class UserError(DmlsError):
    """The user's input is wrong: a retry fails again until the input is corrected.

    Examples:
        >>> from dmls_core.errors import DataError, UserError
        >>> try:
        ...     raise DataError("the file has no rows")
        ... except UserError as error:
        ...     print(error.exit_code, error.issues[0].message)
        1 the file has no rows
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, issues: Sequence[ValidationIssue] | ValidationIssue | str) -> None:
        if isinstance(issues, str):
            issues = ValidationIssue(issues)
        self.issues: tuple[ValidationIssue, ...] = (
            (issues,) if isinstance(issues, ValidationIssue) else tuple(issues)
        )
        super().__init__("\n".join(map(str, self.issues)))


class SpecError(UserError):
    """``spec.toml`` is not a valid spec."""


class SubmissionError(UserError):
    """A submission cannot be admitted (names, missing files, sizes)."""


class DataError(UserError):
    """The data does not match the spec, or failed its expectations."""


class NotFoundError(UserError):
    """The requested job, run or model does not exist."""


class PlatformError(DmlsError):
    """A service or the machine failed: a retry may help."""


class StoreError(PlatformError):
    """The service or file system behind the store failed."""


class ObjectMissingError(StoreError):
    """The object does not exist in the store."""


class ConflictError(StoreError):
    """A conditional write failed because another writer came first."""


class RunnerError(PlatformError):
    """The trainer did not start, or exited without a result."""


class EngineUnavailableError(PlatformError):
    """The requested engine cannot run on this machine."""


class TrackingError(PlatformError):
    """MLflow failed or returned an unexpected response."""


class ServingError(PlatformError):
    """Triton failed, or a served model returned wrong predictions."""


class RejectedModelError(ServingError):
    """A model's files are damaged, or not those that its trainer wrote: a retry fails again."""


class InvalidRequestError(ServingError):
    """A model answered that the request is wrong."""


class ServingTimeoutError(ServingError):
    """Triton did not answer in time: it, or the model, may be busy."""
