"""Find columns that give others away: by the order in which they put the rows, or as a weighted sum.

A column that predicts another one puts rows with like values of it next to each other. For numbers, the error
is the mean squared difference of the ranks of neighbours, relative to rows in random order. For classes, it
is the share of rows without a neighbour of their class, averaged over the classes, relative to chance. So 0
is a perfect prediction by this column alone, and 1 none. No model is fitted: 10,000 columns take a second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROWS = 2_000
"""Largest number of rows that are compared; the caller has drawn them from the whole table."""

CELLS = 10_000_000
"""Of a wide table, fewer rows are compared, but at least ``LEAST_ROWS``."""

LEAST_ROWS = 500

_MIN_ROWS = 20

CLASS_ROWS = 30
"""Rows of each class of a target to compare, if it has so many: a random draw has few of a rare one."""

_DRAWN = 1_000_000
"""Largest number of rows among which those of rare classes are looked for."""

_PAIRS = 100
"""Largest number of columns of which all pairs are compared; of more, only those with the target."""

_PERFECT = 0.005
"""Error up to which a column gives another one away."""

_SMALL = {True: 0.05, False: 0.02}
"""Error (classes, numbers) up to which a column gives the target away if the others are much worse."""

_RATIO = 4.0
"""How many times larger the error of every other column must then be."""

_GROUP = 3
"""Smallest average number of rows per category of a column that gives another one away."""

_FEW = 20
"""Largest number of distinct integers that are taken for classes."""

_FEW_ROWS = 5
"""Smallest average number of rows for each of them."""

_AGREEING_ROWS = 10
"""Smallest number of rows outside of the most frequent class: fewer agree by chance."""

_EXACT = 1 << 24
"""Size of numbers from which float32 has not every integer, so that different columns look alike."""

_MISSING_SHARE = 0.1
"""Largest share of missing values in a column of a weighted sum."""

_SUM_ROWS = 10
"""Smallest number of rows for each column of a weighted sum: a few rows are a sum of anything."""

_SUM_SHARE = 0.5
"""Smallest share of rows in which the target is a weighted sum."""

_SUM_UNEXPLAINED = 0.5
"""Share of the target's variance from which no weighted sum is looked for."""

_SUM_EFFECT = 0.05
"""Smallest change of the target by a column of the sum, relative to the target's median deviation."""

_SUM_ITERATIONS = 15

_RIDGE = 1e-12
"""Part of the trace that makes the normal equations of a weighted sum solvable."""

_SUM_DIGITS = 1e-3
"""Largest error of a weighted sum, relative to the target's median deviation."""

_BLOCK = 1_000


@dataclass(frozen=True, slots=True)
class Relation:
    """``column`` determines ``other`` in nearly every row of the sample.

    With ``both``, they only differ in their unit, sign or spelling, so that one of them is enough.
    """

    column: str
    other: str
    both: bool

    @property
    def message(self) -> str:
        """Return what to do about it."""
        if self.both:
            return (
                f"{self.column} and {self.other} hold the same information: "
                "take one of them out of the features."
            )
        return (
            f"{self.column} gives {self.other} away: take it out of the features, "
            f"unless it is known before {self.other} is."
        )

    def concerns(self, target: str) -> bool:
        """Return whether a feature gives the target away."""
        return target == self.other or (self.both and target == self.column)


def find_relations(
    names: Sequence[str], matrix: NDArray[np.floating], texts: Collection[int], targets: Sequence[int]
) -> tuple[Relation, ...]:
    """Return which columns give others away: all pairs of a narrow table, of a wide one only the ``targets``.

    ``matrix`` has a column for each name, NaN where a value is missing; ``texts`` are the positions of those
    that contain codes of texts.
    """
    if not targets or len(names) < 2 or len(matrix) < _MIN_ROWS:
        return ()
    narrow = len(names) <= _PAIRS
    others = list(range(len(names))) if narrow else list(targets)
    rows = min(ROWS, max(LEAST_ROWS, CELLS // (len(names) * len(others))))
    classes = [
        matrix[:, at] for at in targets if at in texts or _are_classes(matrix[~np.isnan(matrix[:, at]), at])
    ]
    picked = draw_rows(classes, len(matrix), rows)
    table = _SortedColumns(np.ascontiguousarray(matrix[picked].T, dtype=np.float64), frozenset(texts))
    positions = np.arange(len(names))
    determined = {
        (int(column), other)
        for other in others
        for column in table.determining(other, positions, strict=other not in targets)
    }
    counts = Counter(names)
    # Parts of a date have its name, and one of them is less than the date.
    parts = {at for at, name in enumerate(names) if counts[name] > 1}
    equivalent = {
        (one, other)
        for one, other in determined
        if (one < other or (other, one) not in determined)
        and parts.isdisjoint((one, other))
        and table.are_equivalent(one, other)
    }
    relations = (
        Relation(names[one], names[other], (one, other) in equivalent)
        for one, other in sorted(determined)
        if (other, one) not in equivalent
    )
    return tuple(dict.fromkeys(one for one in relations if one.column != one.other))


def draw_rows(classes: Sequence[NDArray[Any]], n_rows: int, most: int) -> NDArray[np.int64]:
    """Draw at most ``most`` of the rows, among them ``CLASS_ROWS`` of each class if possible.

    They are in random order: within ties, the order of the file is no hint.
    """
    draw = np.random.default_rng(0)
    drawn = draw.choice(n_rows, min(n_rows, _DRAWN), replace=False)
    is_first = np.zeros(len(drawn), dtype=bool)
    for target in classes:
        values = target[drawn]
        order = np.argsort(values, kind="stable")  # missing values last
        new = np.append(True, values[order][1:] != values[order][:-1])
        begins = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order)) - begins
        is_first |= (rank < CLASS_ROWS) & ~np.isnan(values)
    return draw.permutation(drawn[np.argsort(~is_first, kind="stable")[:most]])


class _SortedColumns:
    """Columns as rows of a matrix, and the order in which each puts the rows of the table."""

    def __init__(self, values: NDArray[np.float64], nominal: frozenset[int]) -> None:
        self._values = values
        self._nominal = nominal
        self._order = np.argsort(values, axis=1).astype(np.int32)  # missing values last

    def determining(self, other: int, columns: NDArray[np.intp], *, strict: bool) -> list[int]:
        """Return which of the columns give the ``other`` one away; unless ``strict``, one may stand out."""
        values = self._values[other]
        has_value = ~np.isnan(values)
        classes = other in self._nominal or _are_classes(values[has_value])
        if not _varies(values[has_value], classes):
            return []
        codes = np.searchsorted(np.unique(values[has_value]), values).astype(np.int32)
        errors = np.concatenate(
            [
                self._errors(columns[start : start + _BLOCK], codes, has_value, classes=classes)
                for start in range(0, len(columns), _BLOCK)
            ]
        )
        errors[columns == other] = 1.0
        is_determining = errors <= _PERFECT
        if not strict and len(errors) > 1:
            least, second = np.partition(errors, 1)[:2]
            is_determining |= (errors == least) & (least <= _SMALL[classes]) & (_RATIO * least <= second)
        return [int(column) for column in columns[is_determining]]

    def are_equivalent(self, one: int, other: int) -> bool:
        """Return whether each value of a column, or a missing one, stands for one of the other.

        Columns that put the rows in the same order are not: of a start and an end, the difference may be what
        determines the target.
        """
        first, second = self._values[[one, other]]
        has_value = ~np.isnan(first)
        if not np.array_equal(has_value, ~np.isnan(second)):
            return False
        first, second = first[has_value], second[has_value]
        if max(np.abs(first).max(), np.abs(second).max()) >= _EXACT:
            return False
        if self._nominal.isdisjoint((one, other)) and _are_affine(first, second):
            return True
        pairs = len(set(zip(first.tolist(), second.tolist(), strict=True)))
        recur = _GROUP * pairs <= len(first)
        return recur and pairs == len(np.unique(first)) == len(np.unique(second))

    def _errors(
        self,
        columns: NDArray[np.intp],
        codes: NDArray[np.int32],
        has_value: NDArray[np.bool_],
        *,
        classes: bool,
    ) -> NDArray[np.float64]:
        """Return the error with which each of the columns predicts the ``codes`` of rows that have one."""
        order = self._order[columns]
        order = order[has_value[order]].reshape(len(columns), -1)
        block = np.take_along_axis(self._values[columns], order, axis=1)
        comparable = np.ones((len(block), block.shape[1] - 1), dtype=bool)
        texts = [at for at, column in enumerate(columns) if int(column) in self._nominal]
        for text in texts:  # the order of categories means nothing
            comparable[text] = (block[text, 1:] == block[text, :-1]) | np.isnan(block[text, :-1])
        errors = _unexplained(codes[order], comparable, classes=classes)
        # Where half of a column is missing, the other half may still give everything away.
        present = (~np.isnan(block)).sum(axis=1)
        for at in np.flatnonzero((present < block.shape[1]) & (2 * present >= block.shape[1])):
            rows = codes[order[at, : present[at]]]
            if _varies(rows, classes):
                error = _unexplained(rows[None], comparable[at : at + 1, : len(rows) - 1], classes=classes)
                errors[at] = min(errors[at], error[0])
        for text in texts:
            if len(np.unique(block[text, : present[text]])) > block.shape[1] / _GROUP:
                errors[text] = 1.0
        return errors


def find_total(
    names: Sequence[str],
    matrix: NDArray[np.floating],
    features: Collection[int],
    relations: Collection[Relation],
    target: int,
) -> str:
    """Return ``find_sum`` of the ``features`` that do not give the target away alone."""
    alone = {name for one in relations if one.concerns(names[target]) for name in (one.column, one.other)}
    summands = [at for at in features if at != target and names[at] not in alone]
    return find_sum(names, matrix, summands, target)


def find_sum(names: Sequence[str], matrix: NDArray[np.floating], columns: Sequence[int], target: int) -> str:
    """Return a sentence on ``columns`` whose weighted sum is the target in most rows; empty if none is.

    Rows with the target's most frequent value, such as 0, do not count. Rows with large errors count less and
    less in the fit, so that it is exact if most rows follow a sum, whatever the others contain.
    """
    columns = [at for at in columns if np.isnan(matrix[:, at]).mean() <= _MISSING_SHARE]
    if not 2 <= len(columns) <= _PAIRS:
        return ""
    rows = matrix[~np.isnan(matrix[:, [*columns, target]]).any(axis=1)]
    distinct, counts = np.unique(rows[:, target], return_counts=True)
    if len(distinct) <= _FEW:
        return ""
    rows = rows[rows[:, target] != distinct[counts.argmax()]]
    columns = [at for at in columns if np.ptp(rows[:, at]) > 0]
    for _ in range(2):  # again with the columns that matter, as the others were fitted to the remaining rows
        if len(columns) < 2 or len(rows) < _SUM_ROWS * (len(columns) + 1):
            return ""
        effects = _fit_sum(rows[:, columns], rows[:, target])
        columns = [at for at, effect in zip(columns, effects, strict=True) if effect > _SUM_EFFECT]
    if len(columns) < 2:
        return ""
    summands = list(dict.fromkeys(names[at] for at in columns))
    listed = f"{', '.join(summands[:-1])} and {summands[-1]}" if len(summands) > 1 else summands[0]
    return (
        f"{listed} together give {names[target]} away, which is a weighted sum of them in most rows: take "
        f"out of the features what is not known before {names[target]} is."
    )


def _fit_sum(features: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how much each column changes the sum, relative to the target's deviation; 0 if none fits."""
    none = np.zeros(features.shape[1])
    deviation = float(np.median(np.abs(target - np.median(target))))
    spread = features.std(axis=0)
    scaled = np.column_stack([np.ones(len(target)), (features - features.mean(axis=0)) / spread])
    weights = np.ones(len(target))
    for step in range(_SUM_ITERATIONS):
        products = scaled.T @ (scaled * weights[:, None])
        products += _RIDGE * np.trace(products) * np.eye(len(products))  # copies of a column share its factor
        factors = np.linalg.solve(products, scaled.T @ (target * weights))
        errors = np.abs(target - scaled @ factors)
        if step == 0 and float((errors**2).mean()) > _SUM_UNEXPLAINED * float(target.var()):
            return none
        weights = np.maximum(errors, (deviation + 1e-30) * 0.5**step) ** -1.5
    rounding = np.finfo(np.float32).eps * (np.abs(features) @ np.abs(factors[1:] / spread) + np.abs(target))
    if float((errors <= _SUM_DIGITS * deviation + rounding).mean()) < _SUM_SHARE:
        return none
    return np.asarray(np.abs(factors[1:]) / max(deviation, 1e-30))


def _unexplained(
    codes: NDArray[np.int32], comparable: NDArray[np.bool_], *, classes: bool
) -> NDArray[np.float64]:
    """Return the error of each row of ``codes``, which has those of the values in the order of a column.

    Neighbours that are not ``comparable`` do not count.
    """
    sizes = np.bincount(codes[0])
    if not classes:
        ranks = (np.cumsum(sizes) - (sizes - 1) / 2).astype(np.float32)
        steps = np.diff(ranks[codes], axis=1) ** 2
        pairs = comparable.sum(axis=1)
        mean = (steps * comparable).sum(axis=1) / np.maximum(pairs, 1)
        return np.where(pairs >= _MIN_ROWS / 2, mean / (2 * ranks[codes[0]].var(dtype=np.float64)), 1.0)
    large = sizes >= _GROUP
    chance = float(((1 - sizes[large] / sizes.sum()) ** 2).mean())
    weights = np.where(large, 1 / np.maximum(sizes, 1), 0.0) / large.sum()
    same = (codes[:, 1:] == codes[:, :-1]) & comparable
    alone = np.ones(codes.shape, dtype=bool)
    alone[:, 1:] &= ~same
    alone[:, :-1] &= ~same
    return np.asarray((weights[codes] * alone).sum(axis=1) / chance)


def _are_affine(first: NDArray[np.float64], second: NDArray[np.float64]) -> bool:
    """Return whether numbers are others in another unit or with another sign, except for their rounding."""
    low, high = first.argmin(), first.argmax()
    slope = (second[high] - second[low]) / (first[high] - first[low])
    share = (first - first[low]) / (first[high] - first[low])
    errors = np.abs(second - second[low] - slope * (first - first[low]))
    rounding = np.finfo(np.float32).eps / 2 * (np.abs(second) + np.abs(slope * first))
    return bool(np.all(errors <= rounding + (1 - share) * rounding[low] + share * rounding[high]))


def _are_classes(values: NDArray[np.float64]) -> bool:
    """Return whether numbers are few integers that recur often."""
    distinct = np.unique(values)
    few = len(distinct) <= _FEW and len(values) >= _FEW_ROWS * len(distinct)
    return few and bool(np.all(distinct == np.floor(distinct)))


def _varies(values: NDArray[Any], classes: bool) -> bool:
    """Return whether enough rows differ from the others."""
    if len(values) < _MIN_ROWS:
        return False
    sizes = np.unique(values, return_counts=True)[1]
    if len(values) - sizes.max() < _AGREEING_ROWS:
        return False
    return not classes or (len(sizes) <= len(values) / _GROUP and bool((sizes >= _GROUP).sum() > 1))
