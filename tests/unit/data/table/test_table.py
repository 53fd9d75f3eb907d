from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmls_core.data.encoder import CategoryFeature, Encoder, NumberFeature, Target
from dmls_core.data.table.table import (
    Table,
    TableColumn,
    encode_in_place,
    encode_table,
    fit_encoder,
    split_holdout,
)
from dmls_core.errors import DataError

"""The holdout: reproducible, disjoint, and refused where a class or the data is too small."""


TARGET = np.array([0] * 50 + [1] * 30 + [2] * 20)
OPTIONS = {"holdout": 0.2, "split": "stratified", "seed": 0, "task": "classification", "folds": 3}


def test_stratified():
    train, test = split_holdout(TARGET, **OPTIONS)
    assert np.bincount(TARGET[test]).tolist() == [10, 6, 4]
    assert sorted([*train, *test]) == list(range(100))
    assert train.dtype == test.dtype == np.int32


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
        (np.array([0, 1, 2, 3] * 4), {"holdout": 0.05}, "too few rows: each side"),
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


"""Fitting learns from the training rows alone; a table and raw values encode alike."""


NAN = math.nan
TABLE = Table(
    columns=(TableColumn("n"), TableColumn("c", ("a", "b", "z")), TableColumn("m")),
    matrix=np.float32([[1, 0, NAN], [2, 2, NAN], [9, NAN, NAN], [NAN, 1, 5]]),
    target_name="y",
    target=np.array([0, 1, 0, 1]),
    labels=("no", "yes"),
)
TRAIN = np.array([2, 0, 1])


def test_with_filling():
    encoder = fit_encoder(TABLE, TRAIN, fill_missing=True)
    assert encoder == Encoder(
        (NumberFeature("n", 2.0), CategoryFeature("c", ("a", "z"), -1.0), NumberFeature("m", 0.0)),
        Target("y", ("no", "yes")),
    )
    matrix = encode_table(encoder, TABLE, np.arange(4))
    np.testing.assert_array_equal(matrix, [[1, 0, 0], [2, 1, 0], [9, -1, 0], [2, -1, 5]])


def test_without_filling():
    encoder = fit_encoder(TABLE, TRAIN, fill_missing=False)
    assert [feature.as_json() for feature in encoder.features] == [
        {"name": "n", "kind": "number", "fill": None},
        {"name": "c", "kind": "category", "categories": ["a", "z"], "missing": None, "unknown": -1.0},
        {"name": "m", "kind": "number", "fill": None},
    ]
    matrix = encode_table(encoder, TABLE, np.arange(4))
    np.testing.assert_array_equal(matrix, [[1, 0, NAN], [2, 1, NAN], [9, NAN, NAN], [NAN, -1, 5]])


@given(st.data())
def test_a_table_and_its_raw_values_encode_alike(data):
    n_rows = data.draw(st.integers(2, 12))
    numbers = st.floats(width=32, allow_infinity=False)
    codes = st.sampled_from([0.0, 1.0, 2.0, NAN])
    column = lambda values: data.draw(st.lists(values, min_size=n_rows, max_size=n_rows))  # noqa: E731
    table = Table(
        columns=(TableColumn("n"), TableColumn("c", ("1", "true", "x y"))),
        matrix=np.ascontiguousarray(np.float32([column(numbers), column(codes)]).T),
        target_name="y",
        target=np.arange(n_rows, dtype=np.float64),
    )
    rows = np.array(data.draw(st.lists(st.integers(0, n_rows - 1), min_size=1, max_size=n_rows)))
    encoder = fit_encoder(table, rows, fill_missing=data.draw(st.booleans()))
    encoded = encode_table(encoder, table, np.arange(n_rows))
    assert encoded.dtype == np.float32
    assert encoded.flags.c_contiguous
    np.testing.assert_array_equal(encoder.transform(table.raw(np.arange(n_rows))), encoded)


def test_many_columns_and_rows():
    values = np.random.default_rng(0).normal(size=(70_000, 37)).astype(np.float32)
    values[::3, 5] = NAN
    table = Table(tuple(TableColumn(f"x{i}") for i in range(37)), values, "y", np.arange(70_000.0))
    rows = np.arange(0, 70_000, 2)
    encoder = fit_encoder(table, rows, fill_missing=True)
    middle = np.nanquantile(values[rows], 0.5, axis=0, method="lower")
    np.testing.assert_array_equal([feature.fill for feature in encoder.features], middle)
    assert not np.isnan(encode_table(encoder, table, rows)).any()


def test_another_table_is_refused():
    encoder = fit_encoder(TABLE, TRAIN, fill_missing=True)
    other = Table((TableColumn("other"),), TABLE.matrix[:, :1], "y", TABLE.target, TABLE.labels)
    with pytest.raises(ValueError, match="different features"):
        encode_table(encoder, other, TRAIN)


def test_rows_encoded_in_place_are_the_same():
    draw = np.random.default_rng(0)
    matrix = draw.normal(size=(150_000, 3)).astype(np.float32)
    matrix[:, 1] = draw.integers(0, 4, len(matrix))
    matrix[draw.random(matrix.shape) < 0.1] = np.nan
    columns = (TableColumn("a"), TableColumn("b", ("p", "q", "r", "s")), TableColumn("c"))
    table = Table(columns, matrix, "y", np.zeros(len(matrix)))
    drawn = draw.random(len(matrix))
    # Some rows are in neither part.
    train, test = np.flatnonzero(drawn < 0.7), draw.permutation(np.flatnonzero(drawn > 0.8))
    encoder = fit_encoder(table, train, fill_missing=True)
    expected = [encode_table(encoder, table, rows) for rows in (train, test)]

    found = encode_in_place(encoder, table, train, test)

    for part, wanted in zip(found, expected, strict=True):
        assert np.array_equal(part, wanted)
        assert part.flags.c_contiguous
        assert np.shares_memory(part, matrix)
    assert not np.shares_memory(*found)
    with pytest.raises(ValueError, match="ascending"):
        encode_in_place(encoder, table, train[::-1], test)
    with pytest.raises(ValueError, match="more than"):
        encode_in_place(encoder, table, train, np.arange(len(matrix)))
