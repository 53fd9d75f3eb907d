"""One error root, with a subclass and an exit code per kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a user's input: what, where and how to mend it.

    ``line`` and ``column`` count from 1; ``key`` is dotted (``n_estimators.min``).
    """

    message: str
    hint: str = ""
    file: str = ""
    line: int | None = None
    column: int | None = None
    key: str = ""
    found: str = ""
    expected: str = ""

    def as_json(self) -> dict[str, object]:
        """Return the object written into ``_status.json``."""
        return asdict(self)

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
    """Root of every error that DMLS raises on purpose. ``str()`` is fit for a user's eyes."""

    exit_code: ClassVar[int] = 3


class UserError(DmlsError):
    """The user's input is wrong: repeating the step cannot help, mending the input does."""

    exit_code: ClassVar[int] = 1

    def __init__(self, problems: Sequence[Problem] | Problem | str) -> None:
        if isinstance(problems, str):
            problems = Problem(problems)
        self.problems: tuple[Problem, ...] = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


class SpecError(UserError):
    """``spec.toml`` is not a valid spec."""


class SubmissionError(UserError):
    """What was dropped cannot be admitted (names, missing files, sizes)."""


class DataError(UserError):
    """The data does not fit the spec, or failed its expectations."""


class NotFoundError(UserError):
    """A job, run or model that was asked for does not exist."""


class PlatformError(DmlsError):
    """A service or the machine failed: a retry may help."""


class StoreError(PlatformError):
    """S3 or the folder behind the store failed."""


class ObjectMissingError(StoreError):
    """The object asked for is not in the store."""


class ConflictError(StoreError):
    """A conditional create or replace lost against another writer."""


class RunnerError(PlatformError):
    """The trainer could not be started, or died without an answer."""


class EngineUnavailableError(PlatformError):
    """The engine asked for cannot run on this machine."""


class TrackingError(PlatformError):
    """MLflow failed or answered something unexpected."""


class ServingError(PlatformError):
    """Triton failed, or a model that it serves did not answer as it must."""
