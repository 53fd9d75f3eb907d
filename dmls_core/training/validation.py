"""The validation of the data, side by side with the search."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from dmls_core.data import ValidationProcess
from dmls_core.errors import DataError, DmlsError, ValidationIssue
from dmls_core.spec import Spec

PATIENCE = 3600.0
"""Seconds that a run waits for the validation once all else is done."""


class SideBySide:
    """Starts the validation with the block and ends it with the block at the latest."""

    def __init__(self, spec: Spec, paths: Sequence[Path], folder: Path) -> None:
        self._arguments = (spec, paths, folder)

    def __enter__(self) -> Self:
        self._process = ValidationProcess(*self._arguments)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()

    def failed(self) -> bool:
        """Say whether it is known already that the data is not as expected, or that the check broke."""
        try:
            self.check()
        except DmlsError:
            return True
        return False

    def check(self) -> None:
        """Raise what is known already.

        Raises:
            DataError: the data is not as expected.
            PlatformError: the validation broke.
        """
        if self._process.finished:
            self.finish()

    def finish(self) -> float:
        """Wait for the end and return the seconds that the validation took.

        Raises:
            DataError: the data is not as expected.
            PlatformError: the validation broke.
        """
        validation = self._process.result(PATIENCE)
        if not validation.success:
            raise DataError(
                [
                    ValidationIssue(
                        failed.message,
                        key=failed.column,
                        found=failed.observed,
                        expected=failed.expected,
                    )
                    for failed in validation.failed
                ]
            )
        return validation.seconds
