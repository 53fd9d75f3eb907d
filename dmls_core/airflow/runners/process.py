"""The runner ``process``: the trainer as a process of the worker's machine, with resource limits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from airflow.sdk import Context

from dmls_core import sandbox
from dmls_core.airflow.runners import IsActive, Runner, TrainerExit, TrainerOperator
from dmls_core.airflow.runners.trainer import ROOT_LABEL, Trainer, worker_environment
from dmls_core.airflow.settings import airflow_settings
from dmls_core.settings import ProcessSettings

if TYPE_CHECKING:
    import psutil

LABELS_VARIABLE = ProcessSettings.variable("trainer_labels")
"""Environment variable with a trainer's labels as JSON, by which orphans are found."""

GRACE_SECONDS = 3.0
"""Seconds between SIGTERM and SIGKILL; Airflow kills the task 5 s after it cancels it."""

REAP_SECONDS = 5.0
"""Seconds between SIGTERM and SIGKILL for an orphan."""


class ProcessTrainerOperator(TrainerOperator):
    """Run ``dmls train`` as a process of the worker's machine.

    It has its own session, a memory limit, a scratch folder that is removed, and of the worker's variables
    only ``worker_environment``. It dies with the task; cancelling the task ends the whole group.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._process: subprocess.Popen[str] | None = None

    def run_trainer(self, trainer: Trainer, context: Context) -> TrainerExit:
        """Start the process, log its output and wait for its end."""
        with tempfile.TemporaryDirectory(prefix="dmls-run-") as scratch:
            code = self._run(trainer, Path(scratch))
        reason = f"was ended by {signal.Signals(-code).name}" if code < 0 else ""
        return TrainerExit(code, reason)

    def command(self, trainer: Trainer) -> list[str]:
        """Return the command line that starts the trainer within its memory limit."""
        python = airflow_settings().trainer_python or sys.executable
        return sandbox.command([python, "-m", "dmls_core.cli", *trainer.arguments], trainer.memory)

    def _run(self, trainer: Trainer, scratch: Path) -> int:
        environment = worker_environment() | trainer.environment
        environment |= {"HOME": str(scratch), "TMPDIR": str(scratch), "PYTHONUNBUFFERED": "1"}
        environment[LABELS_VARIABLE] = json.dumps(trainer.labels)
        self.log.info("Starting the trainer: dmls %s", " ".join(trainer.arguments))
        self._process = subprocess.Popen(
            self.command(trainer),
            cwd=scratch,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            pipe: IO[str] = self._process.stdout  # type: ignore[assignment]
            for line in pipe:
                self.log.info("%s", line.rstrip())
            return self._process.wait()
        finally:
            self.cancel()

    def cancel(self) -> None:
        """End the trainer's process group: SIGTERM, then SIGKILL."""
        process = self._process
        if process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:
                return
            try:
                process.wait(timeout=GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                self.log.warning("the trainer did not end within %s s of %s", GRACE_SECONDS, number.name)


class ProcessRunner(Runner):
    """Start trainers as processes of the worker's machine."""

    operator_class = ProcessTrainerOperator

    def check(self) -> list[str]:
        """Check that the trainer's Python has the trainer's packages."""
        python = self.settings.trainer_python or sys.executable
        # An import of scikit-learn takes seconds of CPU time.
        code = "import dmls_core, optuna, importlib.metadata as m; m.version('scikit-learn')"
        try:
            done = subprocess.run(
                [python, "-c", code],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
        except OSError as error:
            return [f"trainer_python {python} cannot be started: {error}"]
        if done.returncode:
            reason = done.stderr.strip().rpartition("\n")[2]
            return [f"{python} cannot import the trainer ({reason}): pip install 'dmls[trainer]'"]
        return []

    def reap(self, is_active: IsActive) -> list[str]:
        """End processes on this machine that outlived their trainer; a trainer itself dies with its task."""
        return reap_processes(self, is_active)


def reap_processes(runner: Runner, is_active: IsActive) -> list[str]:
    """End this machine's orphans by their ``LABELS_VARIABLE`` and return their ids; for ``Runner.reap``."""
    import psutil

    orphans = []
    for process, labels in _trainer_processes(runner.settings.root):
        with suppress(psutil.Error):
            old = time.time() - process.create_time() >= runner.min_age_seconds
            if old and not is_active(labels["dmls.dag"], labels["dmls.run"]):
                process.terminate()
                orphans.append(process)
    for process in psutil.wait_procs(orphans, timeout=REAP_SECONDS)[1]:
        with suppress(psutil.Error):
            process.kill()
    return [str(process.pid) for process in orphans]


def _trainer_processes(root: str) -> Iterator[tuple[psutil.Process, dict[str, str]]]:
    """Yield this machine's processes of trainers that belong to ``root``, with their labels."""
    import psutil

    for process in psutil.process_iter():
        try:
            text = process.environ().get(LABELS_VARIABLE)
        except psutil.Error:
            continue
        if text and (labels := json.loads(text))[ROOT_LABEL] == root:
            yield process, labels
