"""The rounds at which a growing booster is scored, and the scores there: its learning curve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.search.task import SearchTask, Space
from dmls_core.search.trial import Surface
from dmls_core.spec.definitions import Choice, ModelDefinition

ROUNDS = "n_estimators"

SCORED_ROUNDS = 16
"""Maximum number of values of a range of ``n_estimators`` that are scored."""

RUNG_ROUNDS, RATE_EXPONENT = 4.0, 0.8
"""The first rung is at ``RUNG_ROUNDS / learning_rate ** RATE_EXPONENT`` rounds. At equal rounds, slow
learners, which are often better in the end, would be pruned; at equal progress (an exponent of 1) they would
cost most."""

RUNGS = 3
"""Number of rungs before the first fold's booster grows to the end."""

_RUNG_GROWTH = 2.0
"""Each has this many times the rounds of the one before. Two rungs take a tenth to a fifth fewer rounds in
all than one rung at 6 and 0.7; the third takes 8 % off the CPU time. Rungs as early as 3 and 0.7 halved the
rounds, and lost 0.009 of the cross-validated r2 of LightGBM on diabetes."""

_EARLY = 3
"""The first rung is at a third of all rounds at the latest."""

_PATIENCE = 0.4
"""A booster stops once this share of its rounds has not improved the score ..."""

_MIN_PATIENCE = 2.0
"""... and at least this, as learning rate times rounds."""


def scored_rounds(model: ModelDefinition, space: Space) -> tuple[int, ...]:
    """Return the values of ``n_estimators`` that are scored, ascending.

    All values of a choice are scored; of a range at most ``SCORED_ROUNDS``, evenly spread on a log scale.
    """
    rounds_space = space.searched.get(ROUNDS)
    if rounds_space is None:
        return (int(space.fixed.get(ROUNDS, model.hyperparameters[ROUNDS].default)),)
    if isinstance(rounds_space, Choice):
        return tuple(sorted(int(value) for value in rounds_space.values))
    low, step = int(rounds_space.min), int(rounds_space.step or 1)
    count = rounds_space.size or 1
    last = low + step * (count - 1)
    if count <= SCORED_ROUNDS:
        return tuple(range(low, last + 1, step))
    ratio = last / low
    points = (low * ratio ** (number / (SCORED_ROUNDS - 1)) for number in range(SCORED_ROUNDS))
    return tuple(dict.fromkeys(low + step * round((point - low) / step) for point in points))


def rung_rounds(learning_rate: float, last: int) -> tuple[int, ...]:
    """Return the rounds of the first rungs of a booster that grows to ``last`` rounds."""
    rounds = RUNG_ROUNDS * math.exp(-RATE_EXPONENT * math.log(learning_rate))
    first = max(1, round(min(rounds, last / _EARLY)))
    return tuple(min(last, round(first * _RUNG_GROWTH**rung)) for rung in range(RUNGS))


def has_plateaued(rounds: int, best: int, learning_rate: float) -> bool:
    """Return whether a booster with its best score at ``best`` rounds stops at ``rounds``."""
    return rounds - best >= max(_PATIENCE * rounds, _MIN_PATIENCE / learning_rate)


TIE_BREAK = 1e-6
"""Weight of the log loss among equal scores: too small to outweigh a better score."""


def loss_share(
    truth: NDArray[Any], prediction: NDArray[Any], weights: NDArray[np.float64] | None = None
) -> float:
    """Return the log loss mapped to 0 (best) to 1; it ranks models with equal scores.

    Scores are often equal if a fold has few rows and the metric counts correct predictions. Values, of shape
    (n_rows,), give 0; probabilities have the shape (n_rows, n_classes).
    """
    if prediction.ndim == 1:
        return 0.0
    probabilities = prediction[np.arange(len(truth)), truth].astype(np.float64)
    losses = -np.log(np.maximum(probabilities, 1e-15))
    if weights is not None and not weights.any():
        return 0.0
    loss = float(np.average(losses, weights=weights))
    return loss / (1.0 + loss)


class LearningCurve:
    """The scores of each fold's booster at the rounds where it was scored."""

    def __init__(self, read: Sequence[int], task: SearchTask) -> None:
        self._read = frozenset(read)
        self._least = read[0]
        self._sign = 1.0 if task.direction == "maximize" else -1.0
        self._folds: list[dict[int, tuple[float, float]]] = []

    def add(self, fold: int, rounds: int, score: float, share: float) -> None:
        """Add the score of ``fold`` at ``rounds``, and its ``loss_share``."""
        if fold == len(self._folds):
            self._folds.append({})
        self._folds[fold][rounds] = score, share

    def best(self) -> int:
        """Return the rounds with the best mean score: a value of ``n_estimators``, if one is scored."""
        return max(self._common(), key=lambda rounds: self._sign * self._tie_broken(rounds))

    def earliest(self) -> int:
        """Return the fewest rounds with the best score so far: more rounds have not improved it."""
        return max(sorted(self._common()), key=lambda rounds: self._sign * self._mean(rounds))

    def score(self) -> float:
        """Return the best score so far, the mean over the folds."""
        return self._mean(self.best())

    def tie_broken_score(self) -> float:
        """Return ``score`` with the tie break."""
        return self._tie_broken(self.best())

    def n_estimators(self) -> int:
        """Return the best value of ``n_estimators``."""
        return max(self.best(), self._least)

    def at_best(self) -> tuple[float, ...]:
        """Return each fold's score at the best rounds."""
        return tuple(scores[self.best()][0] for scores in self._folds)

    def reached(self) -> str:
        """Return the boosters' progress as text for a message."""
        if len(self._folds) > 1:
            return f"{len(self._folds)} folds"
        return f"{max(self._folds[0])} rounds of the first fold"

    def surface(self, name: str) -> Surface | None:
        """Return the scores by values of the hyperparameter ``name``; ``None`` before the first."""
        legal = [rounds for rounds in self._common() if rounds in self._read]
        if not legal:
            return None
        return Surface({name: tuple(legal)}, tuple(self._mean(rounds) for rounds in legal))

    def _mean(self, rounds: int) -> float:
        # A few floats after every round: NumPy's mean would take longer than a round does.
        return sum(scores[rounds][0] for scores in self._folds) / len(self._folds)

    def _tie_broken(self, rounds: int) -> float:
        share = sum(scores[rounds][1] for scores in self._folds) / len(self._folds)
        return self._mean(rounds) - self._sign * TIE_BREAK * share

    def _common(self) -> list[int]:
        """Return the rounds scored on every fold; as soon as possible, only values of ``n_estimators``."""
        rounds = [one for one in self._folds[0] if all(one in scores for scores in self._folds)]
        legal = [one for one in rounds if one in self._read]
        return legal or rounds
