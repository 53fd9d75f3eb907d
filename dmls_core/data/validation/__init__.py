"""Validate a run's data with Great Expectations.

Importing it takes seconds, so it runs in a child process during the search. Only that child imports
``suite``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dmls_core import sandbox
from dmls_core.errors import DataError, PlatformError
from dmls_core.settings import DataLimits
from dmls_core.spec import Spec

_RESULT = "validation.json"

_LIMITS = sandbox.Limits(memory=0, seconds=0, cpu_seconds=0, threads=1, nice=10)
"""The trainer's own memory limit covers its child processes; ``result`` has the time-out."""

_TAIL = 2_000
"""Characters of a crashed validation's log in the error."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one expectation, in plain words; ``column`` is empty for the table as a whole.

    ``expectation`` is its name in Great Expectations, or ``readable`` if the data cannot be read.
    """

    column: str
    expectation: str
    success: bool
    observed: str
    expected: str
    message: str


@dataclass(frozen=True, slots=True)
class Validation:
    """The content of ``validation.json``; ``success`` means that the data meets every expectation."""

    success: bool
    expectations: tuple[Outcome, ...]
    seconds: float

    @property
    def failed(self) -> tuple[Outcome, ...]:
        """Return the expectations that the data does not meet."""
        return tuple(expectation for expectation in self.expectations if not expectation.success)


class ValidationProcess:
    """Great Expectations at low priority, in a process that ends with the thread that started it."""

    def __init__(self, spec: Spec, data: Sequence[Path], out: Path) -> None:
        """Start the process; results of an earlier validation in ``out`` are replaced."""
        out.mkdir(parents=True, exist_ok=True)
        self._result = out / _RESULT
        self._result.unlink(missing_ok=True)
        self._log = out / "validation.log"
        arguments = json.loads(spec.canonical()), list(map(str, data)), str(out)
        self._call = sandbox.start(validate, *arguments, limits=_LIMITS, log=self._log)

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._call.pid

    @property
    def finished(self) -> bool:
        """Return whether the process has ended, successfully or not."""
        return self._call.finished

    def result(self, timeout: float | None = None) -> Validation:
        """Wait for the result, at most ``timeout`` seconds.

        Raises:
            PlatformError: the process crashed, or was ended after ``timeout``.
        """
        try:
            self._call.result(timeout)
        except (PlatformError, sandbox.SandboxError) as error:
            tail = self._log.read_text(errors="replace")[-_TAIL:].strip()
            raise PlatformError(
                f"the validation of the data did not finish: {_cause(error)}\n{tail}"
            ) from None
        report = json.loads(self._result.read_bytes())
        expectations = tuple(Outcome(**expectation) for expectation in report["expectations"])
        return Validation(report["success"], expectations, report["seconds"])

    def kill(self) -> None:
        """End the process, if it is still running."""
        self._call.kill()


def validate(spec: dict[str, Any], data: Sequence[str], out: str) -> None:
    """Write ``validation.json`` and ``data_docs/index.html`` to the folder ``out``; runs in the child."""
    import warnings

    started = time.perf_counter()
    warnings.simplefilter("ignore")
    outcomes = _outcomes(
        Spec.from_json(spec, file="spec.json"), list(map(Path, data)), Path(out) / "data_docs"
    )
    report = {
        "schema": 1,
        "success": all(outcome.success for outcome in outcomes),
        "expectations": list(map(asdict, outcomes)),
        "seconds": round(time.perf_counter() - started, 3),
    }
    partial = Path(out) / f"{_RESULT}.part"
    partial.write_text(json.dumps(report, indent=1, ensure_ascii=False))
    partial.replace(Path(out) / _RESULT)


def _outcomes(spec: Spec, data: list[Path], docs: Path) -> list[Outcome]:
    import gc

    from dmls_core.data.validation.expectations import plan_expectations, read_frame

    try:
        frame = read_frame(spec, data, DataLimits.from_environment())
    except DataError as error:
        return [
            Outcome(
                column=issue.key,
                expectation="readable",
                success=False,
                observed=issue.message,
                expected="the data can be read",
                message=str(issue),
            )
            for issue in error.issues
        ]
    gc.disable()  # the next import creates no garbage, and the collector would take a fifth of its time
    from dmls_core.data.validation.suite import run_suite

    gc.enable()
    expectations = plan_expectations(spec, frame.roles, frame.facts, frame.missing)
    return run_suite(frame.data, expectations, docs)


def _cause(error: PlatformError | sandbox.SandboxError) -> str:
    return error.issues[0].found if isinstance(error, sandbox.SandboxError) else str(error)
