"""The holdout: reproducible, disjoint, and refused where a class or the data is too small."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmls_core.data.table import split_holdout
from dmls_core.errors import DataError

TARGET = np.array([0] * 50 + [1] * 30 + [2] * 20)
OPTIONS = {"holdout": 0.2, "split": "stratified", "seed": 0, "task": "classification", "folds": 3}


def test_stratified():
    train, test = split_holdout(TARGET, **OPTIONS)
    assert np.bincount(TARGET[test]).tolist() == [10, 6, 4]
    assert sorted([*train, *test]) == list(range(100))
    assert train.dtype == test.dtype == np.int64


def test_the_seed_decides():
    first, again = split_holdout(TARGET, **OPTIONS), split_holdout(TARGET, **OPTIONS)
    np.testing.assert_array_equal(first[0], again[0])
    np.testing.assert_array_equal(first[1], again[1])
    assert first[1].tolist() != split_holdout(TARGET, **OPTIONS | {"seed": 1})[1].tolist()
    # The same on every machine and in every release: a run that is resumed must split as it did.
    assert split_holdout(TARGET[::10], **OPTIONS | {"split": "random", "folds": 1})[1].tolist() == [2, 8]


@settings(deadline=None)
@given(st.integers(4, 200), st.floats(0.05, 0.5), st.integers(0, 2**32 - 1))
def test_random_for_regressors(n_rows, holdout, seed):
    target = np.linspace(0, 1, n_rows)
    train, test = split_holdout(
        target, holdout=holdout, split="random", seed=seed, task="regression", folds=2
    )
    assert len(test) == int(np.ceil(n_rows * holdout))
    assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(n_rows))


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        (TARGET[:50:10], {"holdout": 0.9, "split": "random"}, "too few rows to hold out 90%"),
        (np.append(TARGET, 3), {}, "class 'd' has too few rows"),
        (np.append(TARGET, [3, 3, 3]), {}, "class 'd' has too few rows"),
        (np.array([0, 1, 2, 3] * 4), {"holdout": 0.05}, "fewer rows to train or score on"),
        (np.append(TARGET, [3] * 4), {"holdout": 0.7}, "class 'd' has too few rows left to train on"),
    ],
)
def test_too_few_rows(target, options, message):
    with pytest.raises(DataError, match=message) as caught:
        split_holdout(target, labels=("a", "b", "c", "d"), **OPTIONS | options)
    assert caught.value.issues[0].expected.startswith("at least")


def test_a_class_that_is_only_held_out_is_refused():
    target = np.array([0] * 20 + [1] * 4)
    seeds = range(60)
    refused = 0
    for seed in seeds:
        try:
            train, _ = split_holdout(target, **OPTIONS | {"split": "random", "seed": seed})
        except DataError as error:
            refused += "left to train on" in str(error)
        else:
            assert np.bincount(target[train])[1] >= 3
    assert 0 < refused < len(seeds)


@pytest.mark.parametrize("options", [{"split": "time"}, {"task": "regression"}])
def test_splits_that_make_no_sense(options):
    with pytest.raises(ValueError, match="cannot split"):
        split_holdout(TARGET, **OPTIONS | options)
