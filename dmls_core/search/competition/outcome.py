"""What a search over one or several models found."""

from __future__ import annotations

from collections.abc import Sequence

from dmls_core.errors import DataError
from dmls_core.search.arm import Arm
from dmls_core.search.interface import SearchOutcome
from dmls_core.search.trial import Trial


def pick_winner(arms: Sequence[Arm], trials: Sequence[Trial]) -> tuple[Arm, SearchOutcome]:
    """Return the model with the best trial, and the outcome: all trials, and that one as the best.

    Of models that are equally good, the one that stands first in ``arms`` wins.

    Raises:
        DataError: no trial of any model finished.
    """
    ordered = sorted(trials, key=lambda trial: trial.number)
    won: tuple[Arm, SearchOutcome] | None = None
    for arm in arms:
        own = [trial for trial in ordered if trial.model == arm.model]
        if not any(trial.state == "finished" for trial in own):
            continue
        outcome = SearchOutcome.of(arm.problem, arm.space, own)
        if won is None or _beats(arm, outcome, won[1]):
            won = arm, outcome
    if won is None:
        reason = ordered[-1].message if ordered else "the search was stopped before the first one ended"
        raise DataError(f"no trial finished: {reason}")
    arm, outcome = won
    return arm, SearchOutcome(tuple(ordered), outcome.best, outcome.params)


def _beats(arm: Arm, one: SearchOutcome, other: SearchOutcome) -> bool:
    if one.best.value is None or other.best.value is None:
        return False
    return arm.problem.better(one.best.value, other.best.value)
