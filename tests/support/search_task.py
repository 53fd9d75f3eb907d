"""A search's task on a small table, as the trainer makes it from a spec."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from dmls_core.models import CATALOGUE, METRICS
from dmls_core.models.catalogue import load_engine
from dmls_core.models.metrics import scorer
from dmls_core.search.task import SearchTask, make_folds


def search_task(
    name: str, features: NDArray[Any], target: NDArray[Any], classes: int, metric: str = "", seed: int = 0
) -> SearchTask:
    """Return the task of a model on the CPU; ``classes`` is 0 for a regression."""
    model = CATALOGUE[name]
    metric = metric or model.default_metric
    return SearchTask(
        model=model,
        engine=load_engine("cpu", name),
        features=features,
        target=target,
        truth=target,
        n_classes=classes,
        folds=make_folds(target, 3, n_classes=classes, seed=seed),
        score=scorer(metric),
        direction=METRICS[metric].direction,
        seed=seed,
        threads=1,
    )
