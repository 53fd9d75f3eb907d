"""Runner for DMLS that starts trainers under ``nice``, so that they yield to a worker's other tasks."""

from __future__ import annotations

import shutil

from dmls_core.airflow.runners import Trainer
from dmls_core.airflow.runners.process.runner import ProcessRunner, ProcessTrainerOperator


class NiceTrainerOperator(ProcessTrainerOperator):
    """Starts the trainer as a process with a niceness of 10."""

    def command(self, trainer: Trainer) -> list[str]:
        return ["nice", "-n", "10", *super().command(trainer)]


class NiceRunner(ProcessRunner):
    """Watches trainers with low priority on the worker's machine."""

    operator_class = NiceTrainerOperator

    def check(self) -> list[str]:
        missing = [] if shutil.which("nice") else ["the command `nice` is missing: install coreutils"]
        return missing + super().check()
