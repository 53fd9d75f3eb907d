"""Synchronous successive halving: a few trees for every configuration, more for the best of them."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dmls_core.search.callbacks import SearchProgress
from dmls_core.search.objective import Objective
from dmls_core.search.trial import Trial

REDUCTION = 3
"""Reduction factor: successive halving keeps one of this many trials at each step."""

_MIN_FIRST_TREES = 10
"""Minimum trees of the first rung: each row is then out of bag for three or four of them."""

_MIN_FIRST_ROWS = 36_000
"""Minimum of trees times rows of the first rung: on few rows scores are noisy, and trees are cheap."""

_MAX_FIRST_TREES = 24
"""Trees up to which ``_MIN_FIRST_ROWS`` raises the first rung."""

_CONFIDENCE = 1.645
"""Standard errors between two scores at which the better one is better with 95 % confidence."""

_NEGLIGIBLE_GAIN = 0.05
"""A forest stops growing once its expected gain is below this share of its score's standard error."""


@dataclass(frozen=True, slots=True)
class Rung:
    """The result of one rung of a trial.

    ``trial`` is the trial so far: ``steps`` is the number of trees, and the last of ``intermediate_values``
    the extrapolated score; ``jackknife`` is that score without each group of rows. If ``converged``, more
    trees would not improve the score noticeably.
    """

    trial: Trial
    jackknife: tuple[float, ...]
    converged: bool
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Promotion:
    """A trial that goes on to the next rung, of ``trees`` trees; ``first`` is the trial after the first rung.

    ``path`` holds the trees after each rung so far, ascending: a worker without the forests repeats their
    growth. ``survivors`` are the numbers of all trials that are still in the search.
    """

    first: Trial
    path: tuple[int, ...]
    trees: int
    survivors: frozenset[int]


@dataclass(frozen=True, slots=True)
class HalvingDecision:
    """The decision that follows from the rungs so far.

    ``promotions`` are the trials to promote now and ``leaders`` the latest states of the surviving trials,
    each the best first; ``ended`` are trials whose end is decided, the winner last.
    """

    promotions: tuple[Promotion, ...]
    ended: tuple[Trial, ...]
    leaders: tuple[Trial, ...]


@dataclass(frozen=True, slots=True)
class SuccessiveHalving:
    """Decides which configurations go on; ``sizes`` are the numbers of trees that are scored, ascending.

    It keeps no state: every decision follows from the trials and their rungs, in any worker.
    """

    sizes: tuple[int, ...]
    first_trees: int
    configurations: int
    sign: int

    def decide(
        self, first: Sequence[Trial], rungs: Mapping[int, Sequence[Rung]], *, late: bool
    ) -> HalvingDecision:
        """Return the decision that follows from a complete first rung (without failed and repeated trials).

        ``rungs`` are those of each promoted trial, by number. If ``late`` (the time is up), the best trial
        wins after the current rung, and grows to the next size of the space only.
        """
        ended: list[Trial] = []
        ordered = sorted(first, key=lambda trial: (-self.sign * trial.intermediate_values[0], trial.number))
        if not ordered:
            return HalvingDecision((), (), ())
        by_trees = {number: {rung.trial.steps: rung for rung in reached} for number, reached in rungs.items()}
        # A trial that has grown alone has won: the time may have been up when that was decided.
        alone = {number for number, reached in rungs.items() if any(rung.alone for rung in reached)}
        compared = max(
            (r.trial.steps or 0 for reached in rungs.values() for r in reached if not r.alone), default=0
        )
        alive = ordered[: 1 if not compared and (late or alone) else max_survivors(len(ordered))]
        path: tuple[int, ...] = (self.first_trees,)
        while len(alive) > 1:
            trees = next_size(self.sizes, path[-1])
            if missing := [trial for trial in alive if trees not in by_trees.get(trial.number, {})]:
                return self._promote(missing, alive, path, trees, ended, by_trees)
            compared_rungs = [by_trees[trial.number][trees] for trial in alive]
            going_on, confidence = survivors(
                [self.sign * rung.trial.intermediate_values[-1] for rung in compared_rungs],
                [self.sign * np.array(rung.jackknife) for rung in compared_rungs],
            )
            if trees == self.sizes[-1] or (compared == trees and (late or alone)):
                going_on = going_on[:1]
            best = alive[going_on[0]].number
            for position in sorted(set(range(len(alive))) - set(going_on)):
                sure = f"{confidence[position]:.0%} confidence"
                why = f"pruned after {trees} trees: trial {best} is better with {sure}"
                ended.append(replace(compared_rungs[position].trial, state="pruned", message=why))
            alive = [alive[position] for position in going_on]
            path = path if trees == path[-1] else (*path, trees)
        return self._grow_winner(alive[0], path, ended, by_trees, late=late)

    def _grow_winner(
        self,
        winner: Trial,
        path: tuple[int, ...],
        ended: list[Trial],
        by_trees: Mapping[int, Mapping[int | None, Rung]],
        *,
        late: bool,
    ) -> HalvingDecision:
        reached = by_trees.get(winner.number, {})
        for size in (size for size in self.sizes if size > path[-1]):
            if size not in reached and path[-1] in self.sizes:
                if late:
                    break
                if path[-1] not in reached:
                    # Only the trees of the first rung have grown: their convergence is still unknown.
                    return self._promote([winner], [winner], path, path[-1], ended, by_trees)
                if reached[path[-1]].converged:
                    break
            if size not in reached:
                return self._promote([winner], [winner], path, size, ended, by_trees)
            path = (*path, size)
        latest = reached[path[-1]].trial if path[-1] in reached else winner
        complete = replace(latest, state="complete", message="")
        return HalvingDecision((), (*ended, complete), (complete,))

    def _promote(
        self,
        missing: Sequence[Trial],
        alive: Sequence[Trial],
        path: tuple[int, ...],
        trees: int,
        ended: Sequence[Trial],
        by_trees: Mapping[int, Mapping[int | None, Rung]],
    ) -> HalvingDecision:
        numbers = frozenset(trial.number for trial in alive)
        promotions = tuple(Promotion(trial, path, trees, numbers) for trial in missing)
        latest = (by_trees.get(trial.number, {}).get(path[-1]) for trial in alive)
        leaders = [rung.trial if rung else trial for rung, trial in zip(latest, alive, strict=True)]
        return HalvingDecision(promotions, tuple(ended), tuple(leaders))

    def first_progress(self, trials: Sequence[Trial]) -> SearchProgress:
        """Return the progress after some trials of the first rung."""
        fresh = [trial.seconds for trial in trials if trial.same_as is None]
        left = max(0, self.configurations - len(fresh))
        further = max_survivors(self.configurations)
        ahead = left * self.first_trees + remaining_trees(further, self.first_trees, self.sizes)
        each = sum(fresh) / max(1, len(fresh)) / self.first_trees
        return SearchProgress(ahead * each, left + further, self.first_trees)

    def progress(self, decision: HalvingDecision) -> SearchProgress:
        """Return the progress after some promotions."""
        best = decision.leaders[0]
        trees = best.steps or self.first_trees
        if not decision.promotions:
            return SearchProgress(0.0, 1, trees, best.value)
        each = max(trial.seconds / trees for trial in decision.leaders)
        ahead = remaining_trees(len(decision.leaders), trees, self.sizes)
        return SearchProgress(ahead * each, len(decision.leaders), trees, best.value)


class HalvingObjective(Objective):
    """An objective whose ``evaluate`` is the first rung of synchronous successive halving.

    ``halving`` decides which trials go on to the next rung.
    """

    halving: SuccessiveHalving

    @abstractmethod
    def promote(self, promotion: Promotion) -> Rung:
        """Take a trial to its next rung."""

    @abstractmethod
    def held(self) -> frozenset[int]:
        """Return the trials that this worker can promote without repeating earlier rungs."""


def first_rung_trees(trees: int, configurations: int, rows: int) -> int:
    """Return the trees of the first rung: all configurations cost about a third of a full forest."""
    few = min(_MAX_FIRST_TREES, _MIN_FIRST_ROWS // max(1, rows))
    return min(trees, max(_MIN_FIRST_TREES, few, trees // (3 * configurations)))


def max_survivors(count: int) -> int:
    """Return how many of ``count`` configurations go on at most."""
    return math.ceil(count / REDUCTION) if count > 1 else 1


def next_size(sizes: Sequence[int], trees: int) -> int:
    """Return the trees of the next rung: three times as many, or the nearest larger size of the space."""
    target = trees * REDUCTION
    if target < sizes[0]:
        return target
    larger = (size for size in sizes if size > trees)
    return min(larger, key=lambda size: abs(size - target), default=sizes[-1])


def remaining_trees(forests: int, trees: int, sizes: Sequence[int]) -> int:
    """Return an upper bound of the trees that ``forests`` forests of ``trees`` trees still grow."""
    ahead = 0
    while forests > 1 and trees < sizes[-1]:
        larger = next_size(sizes, trees)
        ahead += forests * (larger - trees)
        forests, trees = max_survivors(forests), larger
    return ahead + max(0, sizes[-1] - trees)


def standard_error(jackknife: NDArray[np.float64]) -> float:
    """Return the standard error of a score from its values without each group of rows.

    This is the delete-a-group jackknife (Kott, 2001). It also holds for the difference of two scores on the
    same rows.
    """
    groups = len(jackknife)
    return float(np.sqrt((groups - 1) / groups * ((jackknife - jackknife.mean()) ** 2).sum()))


def remaining_gain(scores: Mapping[int, float], last: int) -> float | None:
    """Return the expected gain of a forest's score up to ``last`` trees.

    The gain falls as one over the number of trees (Probst and Boulesteix, 2018, "To tune or not to tune the
    number of trees in random forest"), so the gain since a third of the trees yields it. The result is
    ``None`` if no forest of a third of the trees was scored. ``scores`` maps numbers of trees to scores.
    """
    trees = max(scores)
    before = [size for size in scores if size <= trees / 3]
    if not before:
        return None
    third = max(before)
    return (scores[trees] - scores[third]) * (1 / trees - 1 / last) / (1 / third - 1 / trees)


def extrapolate(scores: Mapping[int, float], last: int) -> float:
    """Return the expected score with ``last`` trees; see ``remaining_gain``."""
    return scores[max(scores)] + (remaining_gain(scores, last) or 0.0)


def converged(scores: Mapping[int, float], last: int, error: float, share: float) -> bool:
    """Return whether a larger forest, of ``last`` trees, would not be noticeably better.

    All trees vote on a new row, but only a ``share`` of them on a scored row: the score is that of a smaller
    forest, and the model has only this share of the remaining gain ahead of it. ``scores`` are by number of
    trees, higher is better; ``error`` is the standard error of the score.
    """
    left = remaining_gain(scores, last)
    return left is not None and share * left <= _NEGLIGIBLE_GAIN * error


def confidence_of(ahead: float, jackknife: NDArray[np.float64]) -> float:
    """Return the confidence, from 0.5 to 1, that a score ``ahead`` of another one is really better."""
    error = standard_error(jackknife)
    if error == 0:
        return 1.0 if ahead > 0 else 0.5
    return 0.5 * (1 + math.erf(ahead / error / math.sqrt(2)))


def survivors(
    scores: Sequence[float], jackknifes: Sequence[NDArray[np.float64]]
) -> tuple[list[int], list[float]]:
    """Return which configurations go on: a third at most, without those that are worse with 95 % confidence.

    Each configuration has a score (higher is better) and a jackknife: its score without each group of rows.
    The result holds the positions of those that go on, the best first, and for every configuration the
    confidence that the best one is better.
    """
    order = sorted(range(len(scores)), key=lambda position: -scores[position])
    best = order[0]
    confidence = [
        confidence_of(scores[best] - scores[one], jackknifes[best] - jackknifes[one])
        for one in range(len(scores))
    ]
    limit = 0.5 * (1 + math.erf(_CONFIDENCE / math.sqrt(2)))
    going_on = [one for one in order[: max_survivors(len(order))] if confidence[one] < limit]
    return going_on, confidence
