"""Columns that give others away are found, and natural data is left alone."""

from __future__ import annotations

import time

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine

from dmls_core.data.leaks import LEAST_ROWS, Relation, find_relations

DRAW = np.random.default_rng(5)
ROWS = 900
NOISE = DRAW.normal(size=ROWS)
CLASSES = DRAW.integers(0, 3, ROWS).astype(float)
AMOUNT = DRAW.lognormal(size=ROWS)


def look(target: np.ndarray, *, texts: tuple[str, ...] = (), **columns: np.ndarray) -> set[tuple[str, bool]]:
    """Return the columns that give the target away, and whether also vice versa."""
    names = [*columns, "target"]
    matrix = np.column_stack([*columns.values(), target])
    found = find_relations(names, matrix, [names.index(name) for name in texts], [len(columns)])
    return {
        (one.column if one.other == "target" else one.other, one.both)
        for one in found
        if one.concerns("target")
    }


def missing(values: np.ndarray, share: float) -> np.ndarray:
    return np.where(DRAW.random(len(values)) < share, np.nan, values)


@pytest.mark.parametrize(
    ("leak", "target", "texts", "both"),
    [
        (CLASSES * 10, CLASSES, (), True),
        ((CLASSES + 1) % 3, CLASSES, ("leak", "target"), True),
        (CLASSES * 100 + DRAW.integers(0, 50, ROWS), CLASSES, (), False),
        (missing(CLASSES, 0.3), CLASSES, (), False),
        (np.log(AMOUNT), AMOUNT, (), False),
        ((3 - 2 * AMOUNT).astype(np.float32), AMOUNT.astype(np.float32), (), True),
        (AMOUNT + DRAW.normal(size=ROWS) / 1e4, AMOUNT, (), False),
        (missing(AMOUNT, 0.4), AMOUNT, (), False),
        (AMOUNT, (AMOUNT - 1) ** 2, (), False),
        (np.where(CLASSES == 1, 1.0, np.nan), (CLASSES == 1).astype(float), (), False),
    ],
    ids="factor recoded finer gaps logarithm unit order missing parabola presence".split(),
)
def test_a_leak(leak: np.ndarray, target: np.ndarray, texts: tuple[str, ...], both: bool) -> None:
    assert look(target, noise=NOISE, leak=leak, texts=texts) == {("leak", both)}


@pytest.mark.parametrize(
    ("feature", "target", "texts"),
    [
        (CLASSES, DRAW.permutation(CLASSES), ()),
        (np.sort(NOISE), CLASSES, ()),
        (np.arange(ROWS) // 2.0, CLASSES, ("feature",)),
        (CLASSES + DRAW.normal(size=ROWS) / 3, CLASSES, ()),
        (AMOUNT + DRAW.normal(size=ROWS), AMOUNT, ()),
        (np.arange(ROWS) % 300.0, (np.arange(ROWS) < 5).astype(float), ("feature",)),
        (np.full(ROWS, np.nan), CLASSES, ()),
        (NOISE, np.full(ROWS, np.nan), ()),
    ],
    ids="chance order pairs overlap noise rare empty targetless".split(),
)
def test_no_leak(feature: np.ndarray, target: np.ndarray, texts: tuple[str, ...]) -> None:
    assert look(target, noise=NOISE, feature=feature, texts=texts) == set()


YEARS = DRAW.integers(0, 8, ROWS).astype(float)
LACKING = np.where(YEARS > 5, np.nan, YEARS)


@pytest.mark.parametrize(
    ("one", "other", "texts", "both"),
    [
        (AMOUNT, 32 + 1.8 * AMOUNT, (), True),
        (YEARS, (YEARS * 3) % 8, (0, 1), True),
        (LACKING, -LACKING, (), True),
        (AMOUNT * 1e4, AMOUNT * 1e4 + DRAW.random(ROWS), (), False),  # a start and an end
        (1.7e9 + AMOUNT * 1e6, 1.7e9 + AMOUNT * 1e6 + 60 * DRAW.random(ROWS), (), False),
        (YEARS, YEARS * 365 + DRAW.integers(0, 365, ROWS), (), False),  # a year and a day
        (LACKING, YEARS, (), False),
        (AMOUNT, AMOUNT.argsort().argsort(), (), False),
        (np.sort(AMOUNT), np.arange(ROWS), (), False),
    ],
    ids="unit spelling gaps start seconds day missing rank index".split(),
)
def test_only_columns_that_can_be_exchanged_hold_the_same_information(
    one: np.ndarray, other: np.ndarray, texts: tuple[int, ...], both: bool
) -> None:
    """Of columns in the same order, the difference may be the signal."""
    matrix = np.column_stack([one, other, NOISE]).astype(np.float32)
    found = find_relations(["one", "other", "target"], matrix, texts, [2])
    assert (Relation("one", "other", True) in found) is both
    assert {relation.both for relation in found} <= {both}


def test_a_part_of_a_date_is_not_the_date() -> None:
    matrix = np.column_stack([YEARS * 365, YEARS % 12, YEARS, NOISE])
    found = find_relations(["date", "date", "year", "target"], matrix, (), [3])
    assert Relation("date", "year", False) in found
    assert not any(one.both for one in found)


def test_the_order_of_the_file_gives_nothing_away() -> None:
    """Ties of a feature are in the order of the file, which is sorted by the target."""
    order = np.argsort(CLASSES)
    assert look(CLASSES[order], tied=np.round(NOISE[order]), constant=np.zeros(ROWS)) == set()


@pytest.mark.parametrize("load", [load_iris, load_wine, load_breast_cancer, load_diabetes])
def test_public_data_has_no_leak(load) -> None:
    found = load(as_frame=True).frame
    names = list(found.columns)
    relations = find_relations(names, found.to_numpy(float), [], [names.index("target")])
    assert [one for one in relations if one.concerns("target")] == []


def test_a_wide_table_takes_a_second() -> None:
    matrix = DRAW.normal(size=(2_000, 5_000)).astype(np.float32)
    matrix[:, 7] = 2 * matrix[:, -1]
    begun = time.process_time()
    names = [f"x{at}" for at in range(4_999)]
    found = find_relations([*names, "y"], matrix, [], [4_999])
    assert found == (Relation("x7", "y", True),)
    assert time.process_time() - begun < 5


def test_no_columns_and_few_rows() -> None:
    assert find_relations([], np.empty((0, 0)), [], []) == ()
    assert find_relations(["y"], np.empty((LEAST_ROWS, 1)), [], [0]) == ()
    assert find_relations(["a", "y"], np.zeros((3, 2)), [], [1]) == ()


def test_the_sentence_names_the_remedy() -> None:
    one_way, both = (Relation("alive", "survived", both).message for both in (False, True))
    assert one_way.startswith("alive gives survived away: exclude it with [columns] drop")
    assert both.startswith("alive and survived hold the same information")
    assert "[columns] drop" in both
