"""Runner for DMLS that starts trainers under ``nice``, so that they yield to a worker's other tasks."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress

from airflow.sdk import Context

from dmls_core import sandbox
from dmls_core.airflow.runners import (
    IsActive,
    Runner,
    Trainer,
    TrainerExit,
    TrainerOperator,
    worker_environment,
)
from dmls_core.airflow.runners.process import LABELS_VARIABLE, reap_processes
from dmls_core.airflow.settings import airflow_settings


class NiceTrainerOperator(TrainerOperator):
    """Runs the trainer as a process with a niceness of 10."""

    process: subprocess.Popen[str] | None = None

    def run_trainer(self, trainer: Trainer, context: Context) -> TrainerExit:
        python = airflow_settings().trainer_python or sys.executable
        dmls = ["nice", "-n", "10", python, "-m", "dmls_core.cli", *trainer.arguments]
        with tempfile.TemporaryDirectory(prefix="dmls-nice-") as scratch:
            # Only what the trainer needs: Airflow's own environment holds secrets.
            environment = worker_environment() | trainer.environment
            environment |= {"HOME": scratch, "TMPDIR": scratch, LABELS_VARIABLE: json.dumps(trainer.labels)}
            self.process = subprocess.Popen(
                sandbox.command(dmls, trainer.memory),  # limits memory, and ends the trainer with the task
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
                for line in self.process.stdout or ():
                    self.log.info("%s", line.rstrip())
                return TrainerExit(self.process.wait())
            finally:
                self.cancel()

    def cancel(self) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)  # the trainer and all that it started


class NiceRunner(Runner):
    """Starts trainers with low priority on the worker's machine."""

    operator_class = NiceTrainerOperator

    def check(self) -> list[str]:
        return [] if shutil.which("nice") else ["the command `nice` is missing: install coreutils"]

    def reap(self, is_active: IsActive) -> list[str]:
        return reap_processes(self, is_active)
