"""Validate a run's data by the expectations of its spec, in the words of Great Expectations.

A child process does so during the search. It checks aggregates of all columns, and writes the result. Only
then, and for a large table after the search, it imports Great Expectations, which takes seconds, and writes
the Data Docs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmls_core import sandbox
from dmls_core.errors import DataError, PlatformError, ValidationIssue
from dmls_core.settings import DataLimits
from dmls_core.spec import Spec

if TYPE_CHECKING:
    from dmls_core.data.validation.checks import CheckResult
    from dmls_core.data.validation.expectations import Expectation, ExpectationType

_RESULT = "validation.json"

_LIMITS = sandbox.Limits(memory=0, seconds=0, cpu_seconds=0, threads=1)
"""The trainer's own memory limit covers its child processes; ``result`` has the time-out."""

_NICE = 10
"""Added to the niceness of the process while it writes the Data Docs: nothing waits for them but the end."""

LARGE = 2_000_000
"""Values from which the Data Docs are written after the search, so that both are not in memory at a time. The
docs of a smaller table take longer than its search."""

_GO = "search-ended"
"""File that the trainer writes then."""

_OF_ANY_ROW: frozenset[ExpectationType] = frozenset({"exists", "between", "in_set", "pattern", "unique"})
"""Expectations that are not met as soon as some rows do not meet them."""

_TAIL = 2_000
"""Characters of a crashed validation's log in the error."""


@dataclass(frozen=True, slots=True)
class ValidationOutcome:
    """The result of one expectation, in plain words; ``column`` is empty for the table as a whole.

    ``expectation`` is its name in Great Expectations, or ``readable`` if the data cannot be read.
    """

    column: str
    expectation: str
    success: bool
    observed: str
    expected: str
    message: str

    def as_issue(self) -> ValidationIssue:
        """Return the issue of an expectation that is not met."""
        return ValidationIssue(self.message, key=self.column, found=self.observed, expected=self.expected)


@dataclass(frozen=True, slots=True)
class Validation:
    """The content of ``validation.json``; ``success`` means that the data meets every expectation."""

    success: bool
    expectations: tuple[ValidationOutcome, ...]
    seconds: float

    @property
    def failed(self) -> tuple[ValidationOutcome, ...]:
        """Return the expectations that the data does not meet."""
        return tuple(expectation for expectation in self.expectations if not expectation.success)


class ValidationProcess:
    """A validation in a process that ends with the thread that started it."""

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

    @property
    def verdict(self) -> Validation | None:
        """Return the result as soon as it is available, while the Data Docs are being written."""
        return self._read() if self._result.exists() else None

    def search_ended(self) -> None:
        """Let the process write the Data Docs of a large table."""
        (self._result.parent / _GO).touch()

    def result(self, timeout: float | None = None) -> Validation:
        """Wait for the result and the Data Docs, at most ``timeout`` seconds.

        Raises:
            PlatformError: the process crashed, or was ended after ``timeout``.
        """
        self.search_ended()
        try:
            self._call.result(timeout)
        except (PlatformError, sandbox.SandboxError) as error:
            tail = self._log.read_text(errors="replace")[-_TAIL:].strip()
            raise PlatformError(
                f"the validation of the data did not finish: {_cause(error)}\n{tail}"
            ) from None
        (self._result.parent / _GO).unlink(missing_ok=True)
        return self._read()

    def _read(self) -> Validation:
        report = json.loads(self._result.read_bytes())
        expectations = tuple(ValidationOutcome(**expectation) for expectation in report["expectations"])
        return Validation(report["success"], expectations, report["seconds"])

    def kill(self) -> None:
        """End the process, if it is still running."""
        self._call.kill()


def check_expectations(spec: Spec, paths: Sequence[Path], *, sample: bool = False) -> None:
    """Raise ``DataError`` for the expectations that data does not meet: those for which a run would fail.

    If the files are a ``sample``, only those count that further rows cannot meet.
    """
    results, _ = _check_all(spec, paths)
    failed = [
        _outcome(expectation, result)
        for expectation, result in results
        if not result.success and (not sample or expectation.expectation_type in _OF_ANY_ROW)
    ]
    if failed:
        raise DataError([outcome.as_issue() for outcome in failed])


def _check_all(spec: Spec, paths: Sequence[Path]) -> tuple[list[tuple[Expectation, CheckResult]], int]:
    """Return the result of each expectation, and the number of cells of the data."""
    from dmls_core.data.validation.checks import check
    from dmls_core.data.validation.expectations import plan_expectations
    from dmls_core.data.validation.facts import gather_facts

    table = gather_facts(spec, paths, DataLimits.from_environment())
    planned = plan_expectations(spec, table)
    results = [(expectation, check(expectation, table)) for expectation in planned]
    return results, table.rows * len(table.columns)


def validate(spec: dict[str, Any], data: Sequence[str], out: str) -> None:
    """Write ``validation.json``, then ``data_docs/index.html`` to the folder ``out``; runs in the child."""
    started = time.perf_counter()
    parsed = Spec.from_json(spec, file="spec.json")
    results: list[tuple[Expectation, CheckResult]] = []
    cells = 0
    try:
        results, cells = _check_all(parsed, list(map(Path, data)))
    except DataError as error:
        outcomes = [_unreadable(issue) for issue in error.issues]
    else:
        outcomes = [_outcome(*result) for result in results]
    report = {
        "schema": 1,
        "success": all(outcome.success for outcome in outcomes),
        "expectations": list(map(asdict, outcomes)),
        "seconds": round(time.perf_counter() - started, 3),
    }
    partial = Path(out) / f"{_RESULT}.part"
    partial.write_text(json.dumps(report, ensure_ascii=False))
    partial.replace(Path(out) / _RESULT)
    if results:
        if report["success"] and cells > LARGE:
            while not (Path(out) / _GO).exists():
                time.sleep(0.1)
        named_columns = (parsed.columns.target, *parsed.expectations.columns)
        _write_docs(results, named_columns, Path(out) / "data_docs")


def _write_docs(
    results: list[tuple[Expectation, CheckResult]], named_columns: Sequence[str], docs: Path
) -> None:
    import gc
    import os
    import warnings

    os.nice(_NICE)
    warnings.simplefilter("ignore")
    gc.disable()  # the next import creates no garbage, and the collector would take a fifth of its time
    from dmls_core.data.validation.data_docs import write_docs

    gc.freeze()  # nor should the collector search all that was imported while the page is rendered
    gc.enable()
    write_docs(results, named_columns, docs)


def _unreadable(issue: ValidationIssue) -> ValidationOutcome:
    return ValidationOutcome(issue.key, "readable", False, issue.message, "the data can be read", str(issue))


def _outcome(expectation: Expectation, result: CheckResult) -> ValidationOutcome:
    subject = f"column {expectation.column!r}" if expectation.column else "the data"
    observed = result.describe(expectation.expectation_type)
    verdict = "as expected" if result.success else "but"
    from dmls_core.data.validation.expectations import TYPES

    return ValidationOutcome(
        expectation.column,
        TYPES[expectation.expectation_type],
        result.success,
        observed,
        expectation.statement,
        f"{subject}: {expectation.statement}, {verdict}: {observed}",
    )


def _cause(error: PlatformError | sandbox.SandboxError) -> str:
    return error.issues[0].found if isinstance(error, sandbox.SandboxError) else str(error)
