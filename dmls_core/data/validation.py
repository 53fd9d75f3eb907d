"""The validation of a run's data, as a process beside the search."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dmls_core.data.limits import DataLimits
from dmls_core.errors import PlatformError
from dmls_core.spec import Spec

_PACKAGE = "dmls_core.data.expectations"
_KEPT_OUT = ("AIRFLOW", "AWS_", "DMLS_", "GE_", "GX_", "MLFLOW_")
"""Beginnings of variables that the validation has no use for, secrets among them."""

_TAIL = 2_000
"""Characters of the log shown when the process broke."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the data did on one expectation.

    Attributes:
        column: the column; empty for the table as a whole.
        expectation: Great Expectations' name of it, or ``readable`` where the data cannot even be read.
        success: whether it is met.
        observed: what was found, in plain words.
        expected: what should be, in plain words.
        message: both in one sentence.
    """

    column: str
    expectation: str
    success: bool
    observed: str
    expected: str
    message: str


@dataclass(frozen=True, slots=True)
class Validation:
    """What ``validation.json`` says.

    Attributes:
        success: whether the data is as expected.
        expectations: each expectation.
        seconds: how long it took.
    """

    success: bool
    expectations: tuple[Outcome, ...]
    seconds: float

    @property
    def failed(self) -> tuple[Outcome, ...]:
        """The expectations that the data does not meet."""
        return tuple(expectation for expectation in self.expectations if not expectation.success)


class ValidationProcess:
    """Great Expectations at low priority. It ends with the thread that started it, even by ``kill -9``."""

    def __init__(self, spec: Spec, data: Sequence[Path], out: Path) -> None:
        """Start the process.

        Args:
            spec: the spec.
            data: the data files.
            out: the folder for ``validation.json`` and ``data_docs/index.html``; what an earlier validation
                left there is replaced.
        """
        out.mkdir(parents=True, exist_ok=True)
        self._result = out / "validation.json"
        self._result.unlink(missing_ok=True)
        self._log = out / "validation.log"
        spec_file = out / "spec.json"
        spec_file.write_bytes(spec.canonical())
        command = [sys.executable, "-P", "-m", _PACKAGE, "--parent", str(os.getpid())]
        command += ["--spec", str(spec_file), "--out", str(out), "--data", *map(str, data)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=_environment()
            )

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    @property
    def finished(self) -> bool:
        """Whether the process has ended, well or not."""
        return self._process.poll() is not None

    def result(self, timeout: float | None = None) -> Validation:
        """Wait for the answer.

        Args:
            timeout: seconds to wait at most.

        Raises:
            PlatformError: it broke, or took too long (and was killed).
        """
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise PlatformError(f"the validation took longer than {timeout:g} s and was ended") from None
        if code != 0 or not self._result.is_file():
            tail = self._log.read_text(errors="replace")[-_TAIL:].strip()
            raise PlatformError(f"the validation broke (exit code {code}): {tail}")
        report = json.loads(self._result.read_bytes())
        return Validation(
            report["success"],
            tuple(Outcome(**expectation) for expectation in report["expectations"]),
            report["seconds"],
        )

    def kill(self) -> None:
        """End the process, if it still runs."""
        self._process.kill()
        self._process.wait()


def _environment() -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(DataLimits.variables) or not name.startswith(_KEPT_OUT)
    }
    # The folder of this very package, and not the working directory, which might hold anything.
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return kept | {
        "GX_ANALYTICS_ENABLED": "false",
        "OMP_NUM_THREADS": "1",
        "POLARS_MAX_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(paths),
    }
