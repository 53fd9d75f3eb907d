"""The learning rate that a spec leaves to DMLS (``"auto"``): a rule sets it, and no trial varies it.

Boosted trees with a lower rate need more rounds for nearly the same predictions. A search of both therefore
compares configurations that differ in cost and hardly in score. For the same reason, trials grow boosters
that learn ``speedup`` times as fast as the model: with that many times its rate, and in proportion fewer
rounds. The last fit learns slower still, as far as the spec's rounds allow: see
``BoostingObjective.refit_params``. With more than two classes, each round has a tree for each: slower models
are hardly better (CatBoost's, which take long, not at all), and LightGBM diverges at rates above 0.2.
"""

from __future__ import annotations

from dataclasses import dataclass

from dmls_core.models.engines.learning_rate import AUTO
from dmls_core.search.task import Space
from dmls_core.spec.definitions import Choice

LEARNING_RATE = "learning_rate"


@dataclass(frozen=True, slots=True)
class Shrinkage:
    """The learning rate of a model, and how many times as fast the boosters of its trials learn.

    ``last`` is the rate of the model that is fitted in the end, as far as the spec's rounds allow.
    """

    rate: float
    speedup: int
    last: float

    @classmethod
    def of(cls, rows: int, n_classes: int, family: str) -> Shrinkage:
        """Return those of a model that is fitted on ``rows``; ``n_classes`` is 0 for a regression."""
        if n_classes > 2:
            last = 0.2 if family == "catboost" else 0.05
            return cls(0.05, 4, last) if rows < MANY else cls(0.1, 2, last)
        return cls(0.05, 4, 0.0125) if rows < MANY else cls(0.1, 4, 0.05)


MANY = 10_000
"""Rows from which a model needs more than its rounds at the lower rate."""


def resolve(space: Space, rows: int, n_classes: int, family: str) -> tuple[Space, int]:
    """Return the space with a rate in place of ``"auto"``, and how many times as fast trials learn.

    The latter is 1 unless the rate is ``"auto"`` alone: scores of rates that the spec lists are exact.
    """
    shrinkage = Shrinkage.of(rows, n_classes, family)
    if space.fixed.get(LEARNING_RATE) == AUTO:
        return Space(space.searched, {**space.fixed, LEARNING_RATE: shrinkage.rate}), shrinkage.speedup
    rate_space = space.searched.get(LEARNING_RATE)
    if not isinstance(rate_space, Choice) or AUTO not in rate_space.values:
        return space, 1
    rates = dict.fromkeys(shrinkage.rate if value == AUTO else value for value in rate_space.values)
    resolved = Space.of({LEARNING_RATE: Choice(values=tuple(rates))})
    others = {name: one for name, one in space.searched.items() if name != LEARNING_RATE}
    return Space({**others, **resolved.searched}, {**space.fixed, **resolved.fixed}), 1
