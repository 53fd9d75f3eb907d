"""What a search over one or several models found."""

from __future__ import annotations

from collections.abc import Sequence

from dmls_core.errors import DataError
from dmls_core.search.candidate import ModelCandidate
from dmls_core.search.task import SearchOutcome
from dmls_core.search.trial import Trial


def pick_winner(
    candidates: Sequence[ModelCandidate], trials: Sequence[Trial]
) -> tuple[ModelCandidate, SearchOutcome]:
    """Return the model with the best trial, and the outcome: all trials, and that one as the best.

    Of models that are equally good, the one that stands first in ``candidates`` wins.

    Raises:
        DataError: no trial of any model finished.
    """
    ordered = sorted(trials, key=lambda trial: trial.number)
    won: tuple[ModelCandidate, SearchOutcome] | None = None
    for candidate in candidates:
        own = [trial for trial in ordered if trial.model == candidate.model]
        if not any(trial.state == "complete" for trial in own):
            continue
        outcome = SearchOutcome.of(candidate.task, candidate.space, own)
        if won is None or _beats(candidate, outcome, won[1]):
            won = candidate, outcome
    if won is None:
        reason = ordered[-1].message if ordered else "the search was stopped before the first one ended"
        raise DataError(f"no trial finished: {reason}")
    candidate, outcome = won
    return candidate, SearchOutcome(tuple(ordered), outcome.best, outcome.params)


def _beats(candidate: ModelCandidate, one: SearchOutcome, other: SearchOutcome) -> bool:
    if one.best.value is None or other.best.value is None:
        return False
    return candidate.task.better(one.best.value, other.best.value)
