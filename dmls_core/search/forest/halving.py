"""How configurations are dropped: few trees for all of them, more for those that remain."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dmls_core.search.strategies import REDUCTION

LEAST_TREES = 10
"""Trees of the first rung at least: each row is then out of bag for three or four of them."""

FIRST_ROWS = 36_000
"""Trees times rows of the first rung at least: few rows tell little, and trees are cheap there."""

MOST_FIRST = 24
"""Trees of the first rung at most, for the few rows' sake."""

SURE = 1.645
"""Standard errors between two scores that make 95 % sure which one is better."""


WORTH = 0.05
"""A forest grows on while that may change its score by more than this share of its standard error."""


def first_rung(trees: int, configurations: int, rows: int) -> int:
    """Return the trees that every configuration gets: together about a third of one full forest.

    Args:
        trees: of a full forest.
        configurations: how many there will be.
        rows: rows to grow on.
    """
    few = min(MOST_FIRST, FIRST_ROWS // max(1, rows))
    return min(trees, max(LEAST_TREES, few, trees // (3 * configurations)))


def room(count: int) -> int:
    """Return how many of ``count`` configurations go on at most."""
    return math.ceil(count / REDUCTION) if count > 1 else 1


def next_size(sizes: Sequence[int], trees: int) -> int:
    """Return how many trees follow: three times as many, or the nearest larger size of the space."""
    wanted = trees * REDUCTION
    if wanted < sizes[0]:
        return wanted
    larger = (size for size in sizes if size > trees)
    return min(larger, key=lambda size: abs(size - wanted), default=sizes[-1])


def trees_ahead(forests: int, trees: int, sizes: Sequence[int]) -> int:
    """Return how many trees are still to be grown, at most, by forests of ``trees`` trees that go on."""
    ahead = 0
    while forests > 1 and trees < sizes[-1]:
        larger = next_size(sizes, trees)
        ahead += forests * (larger - trees)
        forests, trees = room(forests), larger
    return ahead + max(0, sizes[-1] - trees)


def standard_error(parts: NDArray[np.float64]) -> float:
    """Return the standard error of a score from its values without each group of rows.

    The delete-a-group jackknife (Kott, 2001): for a score, or for the difference of two on the same rows.
    """
    groups = len(parts)
    return float(np.sqrt((groups - 1) / groups * ((parts - parts.mean()) ** 2).sum()))


def still_gained(scores: Mapping[int, float], last: int) -> float | None:
    """Return what a forest's score gains yet until ``last`` trees.

    That falls as one over the number of trees (Probst and Boulesteix, 2018, "To tune or not to tune the
    number of trees in random forest"): the gain since a third of its trees tells it.

    Args:
        scores: by number of trees.
        last: the largest number of trees.

    Returns:
        To be added to the score; ``None`` where no forest of a third of the trees was scored.
    """
    trees = max(scores)
    before = [size for size in scores if size <= trees / 3]
    if not before:
        return None
    third = max(before)
    return (scores[trees] - scores[third]) * (1 / trees - 1 / last) / (1 / third - 1 / trees)


def foretold(scores: Mapping[int, float], last: int) -> float:
    """Return the score that a forest will have with ``last`` trees; see ``still_gained``."""
    return scores[max(scores)] + (still_gained(scores, last) or 0.0)


def converged(scores: Mapping[int, float], last: int, error: float, share: float) -> bool:
    """Say whether a forest is as good as a larger one would be.

    All trees answer for a new row. A scored one is answered by a share
    of them, as if by a smaller forest: the model has only that share of the gain before it.

    Args:
        scores: by number of trees; more is better.
        last: the largest number of trees.
        error: standard error of the score, 0 or more.
        share: of the trees that answer a scored row.
    """
    left = still_gained(scores, last)
    return left is not None and share * left <= WORTH * error


def certainty(ahead: float, parts: NDArray[np.float64]) -> float:
    """Return how sure it is, from 0.5 to 1, that a score that is ``ahead`` of another is better.

    Args:
        ahead: by how much it is better, 0 or more.
        parts: the same without each group of rows.
    """
    error = standard_error(parts)
    if error == 0:
        return 1.0 if ahead > 0 else 0.5
    return 0.5 * (1 + math.erf(ahead / error / math.sqrt(2)))


def remaining(scores: Sequence[float], parts: Sequence[NDArray[np.float64]]) -> tuple[list[int], list[float]]:
    """Say which configurations go on.

    Those go on of which it is not sure that the best one is better, but a third of all at most.

    Args:
        scores: of each configuration; more is better.
        parts: of each, its score without each group of rows.

    Returns:
        Positions of those that go on, the best first; and of each configuration how sure it is that the
        best one is better.
    """
    order = sorted(range(len(scores)), key=lambda position: -scores[position])
    best = order[0]
    sure = [certainty(scores[best] - scores[one], parts[best] - parts[one]) for one in range(len(scores))]
    limit = 0.5 * (1 + math.erf(SURE / math.sqrt(2)))
    return [one for one in order[: room(len(order))] if sure[one] < limit], sure
