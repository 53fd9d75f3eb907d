"""The model that a search ends with: its winner's own forest, cut to the best setting."""

from __future__ import annotations

from typing import Any, cast

from dmls_core.models.engines import Fitted, GrowingForestEngine
from dmls_core.models.engines.base import useful_threads
from dmls_core.search.forest.configuration import Candidate
from dmls_core.search.forest.cut import cut_forest
from dmls_core.search.forest.incremental_forest import IncrementalForest
from dmls_core.search.forest.scoring import ScoringData
from dmls_core.search.forest.space import TREES, PartitionedSpace
from dmls_core.search.space import Space
from dmls_core.search.task import SearchTask
from dmls_core.search.trial import Trial


def cut_model(
    task: SearchTask,
    space: Space,
    layout: PartitionedSpace,
    field: ScoringData,
    winner: Candidate | None,
    best: Trial,
) -> Fitted:
    """Return the model of the best trial.

    Args:
        task: what was searched.
        space: the whole space.
        layout: the same, taken apart.
        field: the rows; scores were taken out of bag.
        winner: the candidate that has grown; where there is none, as after a restart, the same forest is
            grown again.
        best: the best trial.
    """
    engine = cast("GrowingForestEngine", task.engine)
    settings = engine.effective(task.model, {**space.fixed, **best.params})
    trees = int(settings[TREES])
    split = field.splits[0]
    forest: Any
    grown = winner.forests[0] if winner is not None and winner.number == best.number else None
    if isinstance(grown, IncrementalForest):
        forest = grown.hand_over()
    else:
        structural = {name: best.params[name] for name in layout.structural.searched}
        asked = engine.effective(task.model, layout.grown(structural, trees))
        threads = useful_threads(task.features, task.threads)
        forest = engine.unfitted(task.model, asked, seed=task.seed, threads=threads)
        forest.fit(split.features, split.target)
    cut = {name: best.params[name] for name in layout.axes}
    cut_forest(forest, trees, cut, len(split.features), field.bins)
    forest.set_params(**engine.library_arguments(settings), warm_start=False)
    return engine.wrap(task.model, settings, forest, task.n_classes)
