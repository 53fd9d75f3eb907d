"""When a search has found enough: no better score for long, a target reached, or convergence."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dmls_core.search.trial import Trial
from dmls_core.spec.definitions import Direction
from dmls_core.spec.tables import EarlyStop

ShouldStop = Callable[[Sequence[Trial]], bool]
"""(all trials so far, by number) -> whether no further one need be started."""


def never_stop(_trials: Sequence[Trial]) -> bool:
    """Say that every trial asked for is wanted."""
    return False


def early_stopping(rules: EarlyStop | None, direction: Direction) -> ShouldStop:
    """Return what says whether the trials satisfy one of ``rules``.

    It depends on nothing but the trials: a resumed search ends where an unbroken one would have.
    """
    if rules is None:
        return never_stop
    sign = 1.0 if direction == "maximize" else -1.0

    def enough(trials: Sequence[Trial]) -> bool:
        scored = [trial for trial in trials if trial.state != "failed"]
        # Trials given up early are no measure, unless there are no others yet.
        compared = [trial for trial in scored if trial.state == "complete"] or scored
        scores = {trial.number: sign * trial.value for trial in compared if trial.value is not None}
        return bool(scores) and (
            _target_reached(rules, scores, sign)
            or _no_better(rules, scores, scored)
            or _converged(rules, [scores[trial.number] for trial in compared if trial.same_as is None])
        )

    return enough


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
