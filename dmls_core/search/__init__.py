"""Hyperparameter search: one loop over an Optuna study."""

from __future__ import annotations

from dmls_core.search.objective import Objective
from dmls_core.search.space import Space
from dmls_core.search.strategies import ModelCandidate, SearchStrategy, make_candidate
from dmls_core.search.task import Fold, SearchOutcome, SearchTask, make_folds
from dmls_core.search.trial import Trial, contiguous_trials

__all__ = [
    "Fold",
    "ModelCandidate",
    "Objective",
    "SearchOutcome",
    "SearchStrategy",
    "SearchTask",
    "Space",
    "Trial",
    "contiguous_trials",
    "make_candidate",
    "make_folds",
]
