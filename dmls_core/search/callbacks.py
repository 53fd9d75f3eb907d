"""Callbacks of a search: early stopping, and progress."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dmls_core.search.trial import Trial
from dmls_core.spec.definitions import Direction
from dmls_core.spec.tables import EarlyStop

ShouldStop = Callable[[Sequence[Trial]], bool]
"""(all trials so far, by number) -> whether to start no further trial."""


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """The progress of a search by successive halving: forests in the search, and trees of each.

    ``remaining_seconds`` is an estimated upper bound. ``best`` is ``None`` during the first rung.
    """

    remaining_seconds: float
    forests: int
    trees: int
    best: float | None = None


def ignore_progress(_: SearchProgress) -> None:
    """Do nothing."""


def never_stop(_trials: Sequence[Trial]) -> bool:
    """Return ``False``."""
    return False


def early_stopping(rules: EarlyStop | None, direction: Direction) -> ShouldStop:
    """Return a callback that ends the search once the trials satisfy one of ``rules``.

    It depends on the trials alone, so a resumed search ends where an uninterrupted one would.
    """
    if rules is None:
        return never_stop
    sign = 1.0 if direction == "maximize" else -1.0

    def should_stop(trials: Sequence[Trial]) -> bool:
        scored = [trial for trial in trials if trial.state != "failed"]
        # Pruned trials count as scores only while no trial is complete.
        compared = [trial for trial in scored if trial.state == "complete"] or scored
        scores = {trial.number: sign * trial.value for trial in compared if trial.value is not None}
        return bool(scores) and (
            _target_reached(rules, scores, sign)
            or _no_better(rules, scores, scored)
            or _converged(rules, [scores[trial.number] for trial in compared if trial.same_as is None])
        )

    return should_stop


def _target_reached(rules: EarlyStop, scores: dict[int, float], sign: float) -> bool:
    return rules.target is not None and max(scores.values()) >= sign * rules.target


def _no_better(rules: EarlyStop, scores: dict[int, float], scored: Sequence[Trial]) -> bool:
    if rules.trials is None:
        return False
    last, best = -1, float("-inf")
    for number, score in scores.items():
        if score > best + rules.tolerance:
            last, best = number, score
    return sum(trial.number > last for trial in scored) >= rules.trials


def _converged(rules: EarlyStop, scores: Sequence[float]) -> bool:
    if rules.converged is None or len(scores) < rules.converged:
        return False
    best = sorted(scores, reverse=True)
    return best[0] - best[rules.converged - 1] <= rules.tolerance
