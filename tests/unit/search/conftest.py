"""A task whose fits cost nothing: the score is a function of the hyperparameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from optuna.pruners import NopPruner

from dmls_core.errors import DataError
from dmls_core.models import CATALOGUE
from dmls_core.models.engines.forests import SklearnForestEngine
from dmls_core.search.samplers.strategy import SearchStrategy, load_strategy
from dmls_core.search.task import Fold, SearchTask

Params = dict[str, Any]


@dataclass
class FakeFitted:
    value: float

    def predict(self, features: np.ndarray) -> np.ndarray:
        return np.full(len(features), self.value)


@dataclass
class FakeEngine(SklearnForestEngine):
    """Counts fits; ``function`` gives the score of the hyperparameters, or raises."""

    function: Callable[[Params], float]
    fits: list[Params] = field(default_factory=list)

    def fit(self, _model: object, params: Params, *_data: object, **_options: object) -> FakeFitted:
        self.fits.append(dict(params))
        return FakeFitted(self.function(dict(params)))


def unpruned(name: str) -> SearchStrategy:
    """Return a strategy whose trials are all scored in full."""
    strategy = load_strategy(name)
    strategy.pruner = NopPruner
    return strategy


def make_task(function: Callable[[Params], float], **changes: Any) -> SearchTask:
    rows = np.arange(6)
    task = SearchTask(
        model=CATALOGUE["random-forest-classifier"],
        engine=FakeEngine(function),
        features=np.zeros((6, 1), np.float32),
        target=rows,
        truth=rows,
        n_classes=2,
        folds=(Fold(rows[:3], rows[3:]), Fold(rows[3:], rows[:3])),
        score=lambda _truth, prediction, _weights: float(prediction[0]),
        direction="maximize",
        seed=0,
        threads=1,
    )
    return replace(task, **changes)


@pytest.fixture
def peak() -> Callable[[Params], float]:
    """Best at 300 trees of entropy."""
    return lambda p: -abs(p["n_estimators"] - 300) / 100 + (p.get("criterion") == "entropy")


def refuses(message: str) -> Callable[[Params], float]:
    def function(_: Params) -> float:
        raise DataError(message)

    return function
