"""Hyperparameter search behind one interface: ``Searcher.run(task, space, ...) -> SearchOutcome``."""

from __future__ import annotations

from dmls_core.search.choose import choose_searcher
from dmls_core.search.folds import make_folds
from dmls_core.search.sequential import SequentialSearcher
from dmls_core.search.space import Space
from dmls_core.search.task import Fold, Searcher, SearchOutcome, SearchTask, Step
from dmls_core.search.trial import Trial, contiguous_trials

__all__ = [
    "Fold",
    "SearchOutcome",
    "SearchTask",
    "Searcher",
    "SequentialSearcher",
    "Space",
    "Step",
    "Trial",
    "choose_searcher",
    "contiguous_trials",
    "make_folds",
]
