"""Hyperparameter search behind one interface: ``Searcher.run(problem, space, ...) -> SearchOutcome``."""

from __future__ import annotations

from dmls_core.search.choose import choose_searcher
from dmls_core.search.folds import make_folds
from dmls_core.search.interface import Fold, Problem, Searcher, SearchOutcome, Step
from dmls_core.search.plain import PlainSearcher
from dmls_core.search.space import Space
from dmls_core.search.trial import Trial, unbroken

__all__ = [
    "Fold",
    "PlainSearcher",
    "Problem",
    "SearchOutcome",
    "Searcher",
    "Space",
    "Step",
    "Trial",
    "choose_searcher",
    "make_folds",
    "unbroken",
]
