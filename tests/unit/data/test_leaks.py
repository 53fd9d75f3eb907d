"""Columns that give others away are found, and natural data is left alone."""

from __future__ import annotations

import time

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine

from dmls_core.data.leaks import CLASS_ROWS, LEAST_ROWS, Relation, draw_rows, find_relations, find_sum

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


@pytest.mark.parametrize("load", [load_iris, load_wine, load_breast_cancer, load_diabetes, load_digits])
def test_public_data_has_a_leak_only_with_a_column_derived_from_the_target(load) -> None:
    found = load(as_frame=True).frame
    found.insert(0, "leak", found["target"] + DRAW.normal(size=len(found)) * found["target"].std() * 0.03)
    for columns, leaks in ((found.columns[1:], set()), (found.columns, {"leak"})):
        names, table = list(columns), found[columns].to_numpy(float)
        relations = find_relations(names, table, [], [names.index("target")])
        assert {one.column for one in relations if one.concerns("target")} == leaks
        assert not find_sum(names, table, range(len(names) - 1), len(names) - 1) or "leak" in names


def test_a_leak_of_a_rare_class_is_found_in_a_large_table() -> None:
    rare = (np.arange(200_000) % 2_000 == 0).astype(float)
    rows = draw_rows([rare], len(rare), 2_000)
    assert rare[rows].sum() == CLASS_ROWS
    assert len(set(rows.tolist())) == 2_000
    assert rare[rows[:1_000]].sum() > 5  # the others are not at the end

    table = np.column_stack([DRAW.normal(size=(len(rare), 2)), rare])
    table[:, 1] = np.where(rare == 1, 7, np.round(table[:, 1]))
    assert [one.column for one in find_relations(["a", "code", "fraud"], table, [1], [2])] == ["code"]


RIDES = 3_000
FARE = np.round(DRAW.lognormal(2.3, 0.6, RIDES), 1)
TIP = np.where(DRAW.random(RIDES) < 0.3, 0, np.round(FARE * DRAW.uniform(0.05, 0.4, RIDES), 2))
TOLLS = np.where(DRAW.random(RIDES) < 0.1, 6.12, 0)
SURCHARGE = DRAW.choice([3.3, 3.8, 0.8, 1.3], RIDES, p=[0.6, 0.2, 0.1, 0.1])
DISTANCE = FARE / 2.5 + DRAW.normal(size=RIDES)


@pytest.mark.parametrize(
    ("total", "target", "leaks"),
    [
        (FARE + TIP + TOLLS + SURCHARGE, TIP, "fare, tolls and total together give y away"),
        (TIP, FARE + TIP + TOLLS, "fare, tolls and total together give y away"),
        (FARE * 2, TIP, ""),
        (DRAW.normal(size=RIDES), 2 * FARE + DISTANCE + DRAW.normal(size=RIDES) / 3, ""),
        (TIP, np.round(DISTANCE), ""),
        (TIP, (FARE > 10).astype(float), ""),
    ],
    ids="part total ratio model rounded classes".split(),
)
def test_a_weighted_sum_that_is_the_target_is_found(
    total: np.ndarray, target: np.ndarray, leaks: str
) -> None:
    names = ["fare", "tolls", "distance", "total", "y"]
    matrix = np.column_stack([FARE, TOLLS, DISTANCE, total, target]).astype(np.float32)
    found = find_sum(names, matrix.astype(float), range(4), 4)
    assert found.startswith(leaks)
    assert bool(found) is bool(leaks)


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
    assert one_way.startswith("alive gives survived away: take it out of the features")
    assert both == "alive and survived hold the same information: take one of them out of the features."
