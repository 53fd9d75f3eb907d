"""Hyperparameter search: one loop over an Optuna study."""

from __future__ import annotations

from dmls_core.search.task import Fold, SearchOutcome, SearchTask, Space, make_folds
from dmls_core.search.trial import Trial, contiguous_trials

__all__ = [
    "Fold",
    "SearchOutcome",
    "SearchTask",
    "Space",
    "Trial",
    "contiguous_trials",
    "make_folds",
]
