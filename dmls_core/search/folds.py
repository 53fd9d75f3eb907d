"""Folds of the cross-validation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.errors import DataError
from dmls_core.search.task import Fold


def make_folds(target: NDArray[Any], folds: int, *, n_classes: int, seed: int) -> tuple[Fold, ...]:
    """Deal the rows out to folds at random, class by class where there are classes.

    There are fewer folds where the smallest class has fewer rows, but at least two; a class with a
    single row is fitted on in every fold and scored in none.

    Args:
        target: (n_rows,): class codes from 0, or values.
        folds: wanted number of folds.
        n_classes: 0 for a regression.
        seed: the same seed deals the same folds.

    Raises:
        DataError: there are fewer than two rows to score on.
    """
    generator = np.random.default_rng(seed)
    groups = (
        [np.flatnonzero(target == code) for code in range(n_classes)]
        if n_classes
        else [np.arange(len(target))]
    )
    groups = [rows for rows in groups if len(rows) > 1]
    if not groups:
        raise DataError("too few rows for a cross-validation: every class has a single row")
    count = max(2, min(folds, *(len(rows) for rows in groups)))
    # Each group goes on where the last one ended, so that the folds differ by one row at most.
    dealt = np.full(len(target), -1)
    start = 0
    for rows in groups:
        dealt[generator.permutation(rows)] = (start + np.arange(len(rows))) % count
        start += len(rows)
    return tuple(
        Fold(train=np.flatnonzero(dealt != number), test=np.flatnonzero(dealt == number))
        for number in range(count)
    )
