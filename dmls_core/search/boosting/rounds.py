"""At which rounds a growing booster is scored, compared with others, and stopped."""

from __future__ import annotations

import math

from dmls_core.search.space import Space
from dmls_core.spec.definitions import ModelDefinition
from dmls_core.spec.hyperparameters import Choice

ROUNDS = "n_estimators"

READINGS = 32
"""Values of ``n_estimators`` that are read from one booster where the space has more."""

COMPARED, BY_RATE = 4.0, 0.8
"""Boosters are first compared after ``COMPARED / learning_rate ** BY_RATE`` rounds. At equal rounds slow
learners, often the better ones in the end, would be given up; at equal progress (an exponent of 1) they
would cost most."""

AGAIN = 2.0
"""They are compared again after so many times as many rounds, before the best are grown to the end: a tenth
to a fifth fewer rounds than with one comparison, at 6 and 0.7. Comparing as early as 3 and 0.7 halved the
rounds, and lost 0.009 of the cross-validated r2 of LightGBM on diabetes."""

EARLY = 3
"""The first comparison comes after one in so many of the rounds at the latest, however slow the learner."""

PATIENCE = 0.4
"""A booster has grown enough once this share of its rounds has brought no better score ..."""

LEAST_PATIENCE = 2.0
"""... and at least this, as learning rate times rounds."""


def readings(model: ModelDefinition, space: Space) -> tuple[int, ...]:
    """Return the values of ``n_estimators`` that are scored, ascending.

    Those of a choice are all taken; of a range as many as ``READINGS``, evenly over their logarithm: a few
    rounds more matter less the more there are.
    """
    wanted = space.searched.get(ROUNDS)
    if wanted is None:
        return (int(space.fixed.get(ROUNDS, model.hyperparameters[ROUNDS].default)),)
    if isinstance(wanted, Choice):
        return tuple(sorted(int(value) for value in wanted.values))
    low, step = int(wanted.min), int(wanted.step or 1)
    count = wanted.size or 1
    last = low + step * (count - 1)
    if count <= READINGS:
        return tuple(range(low, last + 1, step))
    ratio = last / low
    points = (low * ratio ** (number / (READINGS - 1)) for number in range(READINGS))
    return tuple(dict.fromkeys(low + step * round((point - low) / step) for point in points))


def compared(learning_rate: float, last: int) -> tuple[int, int]:
    """Return after how many rounds a booster is compared with others before it has grown to ``last``."""
    wanted = COMPARED * math.exp(-BY_RATE * math.log(learning_rate))
    first = max(1, round(min(wanted, last / EARLY)))
    return first, min(last, round(AGAIN * first))


def grown_enough(rounds: int, best: int, learning_rate: float) -> bool:
    """Say whether a booster's growth may end at ``rounds``, if its best score is that at ``best``."""
    return rounds - best >= max(PATIENCE * rounds, LEAST_PATIENCE / learning_rate)
