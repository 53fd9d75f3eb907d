"""Runners start the trainers of the task ``search``, watch them, and end them.

A runner is one module with a subclass of ``TrainerOperator``, a subclass of ``Runner``, and one line under
the entry-point group ``dmls.runners``; ``runner`` of the bundle entry names it.
"""

from dmls_core.airflow.runners.runner import LOST, IsActive, Runner, TrainerExit, in_thread, load_runner
from dmls_core.airflow.runners.trainer import Trainer, earlier_tries, node_trainers, worker_environment
from dmls_core.airflow.runners.trainer_operator import TrainerOperator

__all__ = [
    "LOST",
    "IsActive",
    "Runner",
    "Trainer",
    "TrainerExit",
    "TrainerOperator",
    "earlier_tries",
    "in_thread",
    "load_runner",
    "node_trainers",
    "worker_environment",
]
