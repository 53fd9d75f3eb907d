"""Small tasks that real forests are grown for."""

from __future__ import annotations

from typing import Any

import numpy as np

from dmls_core.models import CATALOGUE
from dmls_core.search.candidate import make_candidate
from dmls_core.search.optimize import search as find
from dmls_core.search.task import SearchTask, Space
from dmls_core.search.trial import Trial
from dmls_core.spec import Choice, Range
from tests.support.search_task import search_task

CLASSIFIER = "random-forest-classifier"
REGRESSOR = "random-forest-regressor"

SPACE = {
    "n_estimators": Range(min=4, max=24),
    "max_depth": Range(min=1, max=6),
    "max_features": Choice(values=("sqrt", 0.7, 1.0)),
    "min_samples_leaf": Choice(values=(1, 3)),
}


def make_task(
    model: str = CLASSIFIER,
    *,
    metric: str = "",
    rows: int = 200,
    columns: int = 5,
    classes: int = 3,
    seed: int = 0,
) -> SearchTask:
    """A target that follows the first two columns, with noise."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(rows, columns)).astype(np.float32)
    signal = x[:, 0] + x[:, min(1, columns - 1)] ** 2 + rng.normal(scale=0.5, size=rows)
    if CATALOGUE[model].task == "regression":
        y, classes = signal.astype(np.float64) + 10, 0
    else:
        y = np.digitize(signal, np.quantile(signal, np.arange(1, classes) / classes)).astype(np.int32)
    return search_task(model, x, y, classes, metric, seed)


def search(task: SearchTask, space: dict | None = None, n_trials: int = 8, **options: Any):
    """Search; return the outcome and every trial that was kept, in order."""
    kept: list[Trial] = []
    models = [make_candidate("auto", task, Space.of(space or SPACE), n_trials)]
    _, outcome = find(models, n_trials, on_trial=kept.append, **options)
    return outcome, kept
