"""Choose the models of a finished search: that of the best trial, or the best one of each boosted family.

Boosters of different families err on different rows, so their mean is usually better than the best of them;
docs/explanation/search.md has the figures. The search does not score the mean, which would cost as much as
another trial of each member.
"""

from __future__ import annotations

from collections.abc import Sequence

from dmls_core.errors import DataError
from dmls_core.models.engines import BoostingEngine
from dmls_core.search.candidate import ModelCandidate
from dmls_core.search.task import SearchOutcome, best_trial
from dmls_core.search.trial import Trial

Winner = tuple[ModelCandidate, SearchOutcome]

SIMILAR = 1.2
"""The mean contains models whose error is at most this multiple of the best booster's."""

GAIN = 0.97
"""Error of the mean as a share of the best booster's on its folds, to be compared with a forest's.

On 61 data sets, the error on held-out rows was 0.95 of it (median); that of extra trees was 0.96 of the error
that the search had seen, that of random forests 0.99."""

_GAIN_IN_LOG_LOSS = 0.9
"""The same for the log loss of more than two classes, in which forests seldom win, whatever the search saw.

On 14 data sets, the mean's error was 0.93 of it (median), but 0.49 and 0.86 on the two where a forest's was
below the booster's by more than 2 %."""


def pick_winner(candidates: Sequence[ModelCandidate], trials: Sequence[Trial]) -> Winner:
    """Return the model with the best trial, and the outcome; of equal models the first one.

    Raises:
        DataError: no trial is complete; the message gives the reason of the last failure.
    """
    best: tuple[ModelCandidate, Trial, float] | None = None
    for scored in _best_trials(candidates, trials):
        if best is None or scored[0].task.better(scored[2], best[2]):
            best = scored
    if best is None:
        last = max(trials, key=lambda trial: trial.number, default=None)
        reason = last.message if last else "the search was stopped before the first one ended"
        raise DataError(f"no trial is complete: {reason}")
    return _outcome(best[0], best[1], trials)


def pick_winners(candidates: Sequence[ModelCandidate], trials: Sequence[Trial]) -> list[Winner]:
    """Return the models whose mean is to be served, the best one first; otherwise the winner alone.

    The former are the best boosters that share a matrix. A model of another kind wins if its error is below
    that which their mean probably has.

    Raises:
        DataError: see ``pick_winner``.
    """
    winner, outcome = pick_winner(candidates, trials)
    boosters = sorted(
        (winner.task.error(score), number, candidate, trial)
        for number, (candidate, trial, score) in enumerate(_best_trials(candidates, trials))
        if isinstance(candidate.task.engine, BoostingEngine)
    )
    similar = [
        (candidate, trial)
        for error, _, candidate, trial in boosters
        if error <= SIMILAR * boosters[0][0] and candidate.task.features is boosters[0][2].task.features
    ]
    error = winner.task.error(float(outcome.best.value or 0))
    in_log_loss = winner.task.n_classes > 2 and winner.task.direction == "minimize"
    gain = expected_gain(len(similar), in_log_loss=in_log_loss)
    if not similar or (winner is not similar[0][0] and error < gain * boosters[0][0]):
        return [(winner, outcome)]
    return [_outcome(candidate, trial, trials) for candidate, trial in similar]


def expected_gain(members: int, *, in_log_loss: bool) -> float:
    """Return the share of the best booster's error below which another kind of model wins.

    ``members`` boosters would be served; ``in_log_loss`` is the metric of more than two classes.
    """
    if in_log_loss:
        return _GAIN_IN_LOG_LOSS
    return GAIN if members > 1 else 1.0


def _best_trials(
    candidates: Sequence[ModelCandidate], trials: Sequence[Trial]
) -> list[tuple[ModelCandidate, Trial, float]]:
    """Return the best complete trial of each model that has one, and its score."""
    ordered = sorted(trials, key=lambda trial: trial.number)
    scored = []
    for candidate in candidates:
        best = best_trial(candidate.task, [trial for trial in ordered if trial.model == candidate.model])
        if best is not None and best.value is not None:
            scored.append((candidate, best, best.value))
    return scored


def _outcome(candidate: ModelCandidate, best: Trial, trials: Sequence[Trial]) -> Winner:
    ordered, objective = tuple(sorted(trials, key=lambda trial: trial.number)), candidate.objective
    return candidate, SearchOutcome(ordered, best, objective.refit_params(best), objective.fitted(best))
