"""Optuna's pruners, and the report of a trial's steps to them."""

from __future__ import annotations

import optuna

from dmls_core.search.objective import REDUCTION
from dmls_core.search.strategies import Pruner


def make_pruner(kind: Pruner) -> optuna.pruners.BasePruner:
    """Return the pruner of a study."""
    if kind == "halving":
        return optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=REDUCTION)
    return optuna.pruners.NopPruner()


def report(trial: optuna.Trial, steps: int, value: float) -> bool:
    """Report a trial's score after ``steps`` steps; return whether to prune the trial.

    Each step is one rung of successive halving; Optuna's rungs are powers of the reduction factor.
    """
    trial.report(value, REDUCTION ** (steps - 1))
    return trial.should_prune()
