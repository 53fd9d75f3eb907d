from __future__ import annotations

import numpy as np
import pytest
from sklearn.model_selection import train_test_split

from dmls_core.data.split.random import split_at_random, split_by_class


@pytest.mark.parametrize("seed", [0, 42])
@pytest.mark.parametrize(("rows", "classes"), [(50, 2), (997, 3), (5_000, 7)])
def test_the_splits_are_those_of_scikit_learn(rows, classes, seed):
    codes = np.random.default_rng(seed).integers(0, classes, rows)
    held_out = rows // 5

    for stratify, found in (
        (codes, split_by_class(codes, held_out, seed)),
        (None, split_at_random(rows, held_out, seed)),
    ):
        wanted = train_test_split(np.arange(rows), test_size=held_out, random_state=seed, stratify=stratify)
        assert [side.tolist() for side in found] == [side.tolist() for side in wanted]
