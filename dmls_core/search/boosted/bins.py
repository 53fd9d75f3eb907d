"""The rows of each fold in bins, shared by all trials."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import cast

from dmls_core.models.engines import Binned, BoostingEngine
from dmls_core.search.interface import Problem
from dmls_core.spec.definitions import Scalar

KEPT = 6
"""Binned folds in memory at most. Each takes about a byte per cell, a quarter of the matrix itself."""


class BinnedFolds:
    """Bins a fold at its first use; the least recently used one goes where there are too many."""

    def __init__(self) -> None:
        self._problem: Problem | None = None
        self._kept: OrderedDict[tuple[Scalar, ...], Binned] = OrderedDict()

    def get(self, problem: Problem, number: int, params: Mapping[str, Scalar]) -> Binned:
        """Return the fold ``number`` of ``problem`` in the bins that ``params`` ask for.

        Raises:
            DataError: the library refuses the hyperparameters on this data.
        """
        if self._problem is not problem:
            self._problem = problem
            self._kept.clear()
        engine = cast("BoostingEngine", problem.engine)
        key = (number, *engine.binning(problem.model, params))
        if key not in self._kept:
            while len(self._kept) >= KEPT:
                self._kept.popitem(last=False)
            fold = problem.folds[number]
            train, test = engine.place(fold.train), engine.place(fold.test)
            self._kept[key] = engine.bin(
                problem.model,
                params,
                problem.features[train],
                problem.target[train],
                problem.features[test],
                n_classes=problem.n_classes,
                seed=problem.seed,
                threads=problem.threads,
            )
        self._kept.move_to_end(key)
        return self._kept[key]
