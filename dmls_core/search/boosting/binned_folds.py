"""Binned folds, shared by all trials."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import cast

from dmls_core.models.engines import Binned, BoostingEngine
from dmls_core.search.task import SearchTask
from dmls_core.spec.definitions import Scalar

KEPT = 6
"""Maximum number of binned folds in memory. Each takes about a byte per cell, a quarter of the matrix."""


class BinnedFolds:
    """Bins each fold at its first use; keeps the ``KEPT`` most recently used ones."""

    def __init__(self, task: SearchTask) -> None:
        self._task = task
        self._kept: OrderedDict[tuple[Scalar, ...], Binned] = OrderedDict()

    def get(self, number: int, params: Mapping[str, Scalar]) -> Binned:
        """Return the fold ``number`` in the bins of ``params``."""
        task = self._task
        engine = cast("BoostingEngine", task.engine)
        key = (number, *engine.binning(task.model, params))
        if key not in self._kept:
            while len(self._kept) >= KEPT:
                self._kept.popitem(last=False)
            fold = task.folds[number]
            train, test = engine.place(fold.train), engine.place(fold.test)
            self._kept[key] = engine.bin(
                task.model,
                params,
                task.features[train],
                task.target[train],
                task.features[test],
                n_classes=task.n_classes,
                seed=task.seed,
                threads=task.threads,
            )
        self._kept.move_to_end(key)
        return self._kept[key]
