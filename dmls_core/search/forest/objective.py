"""One configuration of a forest at a time, grown in steps: for searches that share a study."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from dmls_core.errors import DataError
from dmls_core.search.forest import halving
from dmls_core.search.forest.space import partition_space, structural
from dmls_core.search.objective import ShouldPrune
from dmls_core.search.space import Space
from dmls_core.search.strategies import REDUCTION
from dmls_core.search.task import SearchTask
from dmls_core.search.trial import Trial
from dmls_core.spec.definitions import Scalar

if TYPE_CHECKING:
    from dmls_core.search.forest.scoring import ScoringData

STEPS = 4
"""Steps of a forest to its full size, each of ``REDUCTION`` times as many trees as the one before."""


class ForestObjective:
    """Scores configurations of a forest; see ``Objective``.

    Args:
        task: what they are scored on; its rows are prepared once, at the first trial.
        space: the whole space.
    """

    def __init__(self, task: SearchTask, space: Space) -> None:
        self._task = task
        self._layout = partition_space(task, space)
        self._field: ScoringData | None = None

    def suggested(self, space: Space) -> Space:
        """Return what needs a forest of its own; see ``Objective.suggested``."""
        return structural(space, self._task.engine.device)

    def evaluate(
        self,
        task: SearchTask,
        space: Space,
        number: int,
        params: Mapping[str, Scalar],
        *,
        should_prune: ShouldPrune,
        stop: Callable[[], bool],
    ) -> Trial | None:
        """Score one trial; see ``Objective.evaluate``."""
        # Here, since they need scikit-learn.
        from dmls_core.search.forest.configuration import Candidate
        from dmls_core.search.forest.scoring import prepare_scoring

        layout = self._layout
        if self._field is None:
            self._field = prepare_scoring(self._task, space, len(layout.cuts))
        candidate = Candidate(task, layout, self._field, number, dict(params))
        try:
            for step, trees in enumerate(_steps(layout.sizes[-1], len(task.truth)), start=1):
                if stop():
                    return None
                candidate.grow(trees)
                if trees < layout.sizes[-1] and should_prune(step, candidate.foretold()):
                    return candidate.trial("pruned", f"given up after {trees} trees")
        except DataError as error:
            return candidate.failed(error)
        return candidate.trial("complete")


def _steps(trees: int, rows: int) -> list[int]:
    first = halving.first_rung(trees, trees, rows)
    counts = {max(first, trees // REDUCTION**back) for back in range(STEPS)}
    return sorted(counts)
