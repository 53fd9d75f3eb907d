"""Validate a run's data in another process, while the search runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from dmls_core.data.validation import ValidationProcess
from dmls_core.errors import DataError, DmlsError
from dmls_core.spec import Spec

_VALIDATION_TIMEOUT = 3600.0
"""Seconds that a run waits for the validation after everything else has finished."""


class BackgroundValidation:
    """Validate the data in another process while the block runs."""

    def __init__(self, spec: Spec, paths: Sequence[Path], folder: Path) -> None:
        self._arguments = (spec, paths, folder)

    def __enter__(self) -> Self:
        self._process = ValidationProcess(*self._arguments)
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()

    def failed(self) -> bool:
        """Return whether the validation has already failed, or could not run."""
        try:
            self.check()
        except DmlsError:
            return True
        return False

    def check(self) -> None:
        """Raise the validation's failure, as ``finish`` does, if it has already failed."""
        if self._process.finished or ((verdict := self._process.verdict) and not verdict.success):
            self.finish()

    def wait(self) -> None:
        """Wait for the verdict; raise the validation's failure, as ``finish`` does."""
        end = time.monotonic() + _VALIDATION_TIMEOUT
        while not (self._process.verdict or self._process.finished) and time.monotonic() < end:
            time.sleep(0.1)
        self.check()

    def search_ended(self) -> None:
        """Let the validation of a large table write its Data Docs."""
        self._process.search_ended()

    def finish(self) -> float:
        """Wait for the validation and return its duration in seconds.

        Raise ``DataError`` if the data violates the expectations, ``PlatformError`` if it could not be
        validated.
        """
        validation = self._process.result(_VALIDATION_TIMEOUT)
        if not validation.success:
            raise DataError([failed.as_issue() for failed in validation.failed])
        return validation.seconds
