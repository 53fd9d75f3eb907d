"""The model that a search ends with: its winner's own forest, cut to the best setting."""

from __future__ import annotations

from typing import Any

from dmls_core.models.engines import Fitted, effective
from dmls_core.models.engines.base import useful_threads
from dmls_core.models.engines.cpu.forests import FittedForest, unfitted
from dmls_core.models.engines.parameters import engine_arguments
from dmls_core.search.interface import Problem
from dmls_core.search.nested.axes import TREES, Layout
from dmls_core.search.nested.candidate import Candidate
from dmls_core.search.nested.cut import cut_forest
from dmls_core.search.nested.ground import Field
from dmls_core.search.nested.grown import GrownForest
from dmls_core.search.space import Space
from dmls_core.search.trial import Trial


def cut_model(
    problem: Problem, space: Space, layout: Layout, field: Field, winner: Candidate | None, best: Trial
) -> Fitted:
    """Return the model of the best trial.

    Args:
        problem: what was searched.
        space: the whole space.
        layout: the same, taken apart.
        field: the rows; scores were taken out of bag.
        winner: the candidate that has grown; where there is none, as after a restart, the same forest is
            grown again.
        best: the best trial.
    """
    settings = effective(problem.model, problem.engine.name, {**space.fixed, **best.params})
    trees = int(settings[TREES])
    ground = field.grounds[0]
    forest: Any
    grown = winner.forests[0] if winner is not None and winner.number == best.number else None
    if isinstance(grown, GrownForest):
        forest = grown.hand_over()
    else:
        structural = {name: best.params[name] for name in layout.structural.searched}
        asked = effective(problem.model, problem.engine.name, layout.grown(structural, trees))
        threads = useful_threads(problem.features, problem.threads)
        forest = unfitted(problem.model, asked, seed=problem.seed, threads=threads)
        forest.fit(ground.features, ground.target)
    cut = {name: best.params[name] for name in layout.axes}
    cut_forest(forest, trees, cut, len(ground.features), field.bins)
    forest.set_params(**engine_arguments(problem.model, settings, problem.engine.name), warm_start=False)
    return FittedForest(problem.model, settings, forest, problem.n_classes)
