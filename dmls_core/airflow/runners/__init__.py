"""Runners start the trainers of the task ``search``.

A runner is one module with a subclass of ``Runner`` and one line under the entry-point group
``dmls.runners``; ``runner`` of the bundle entry names it.
"""

from __future__ import annotations

from dmls_core.airflow.runners.runner import IsActive, Runner, TrainerExit, TrainerOperator, load_runner
from dmls_core.airflow.runners.trainer import Trainer, worker_environment

__all__ = [
    "IsActive",
    "Runner",
    "Trainer",
    "TrainerExit",
    "TrainerOperator",
    "load_runner",
    "worker_environment",
]
