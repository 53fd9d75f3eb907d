"""One configuration of a forest at a time, grown in steps: for searches that share a study."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from dmls_core.errors import DataError
from dmls_core.search.evaluator import GiveUp
from dmls_core.search.interface import Problem
from dmls_core.search.nested import rungs
from dmls_core.search.nested.axes import lay_out, structural
from dmls_core.search.space import Space
from dmls_core.search.strategies import REDUCTION
from dmls_core.search.trial import Trial
from dmls_core.spec.definitions import Scalar

if TYPE_CHECKING:
    from dmls_core.search.nested.ground import Field

STEPS = 4
"""Steps of a forest to its full size, each of ``REDUCTION`` times as many trees as the one before."""


class NestedEvaluator:
    """Scores configurations of a forest; see ``Evaluator``.

    Args:
        problem: what they are scored on; its rows are prepared once, at the first trial.
        space: the whole space.
    """

    def __init__(self, problem: Problem, space: Space) -> None:
        self._problem = problem
        self._layout = lay_out(problem, space)
        self._field: Field | None = None

    def suggested(self, space: Space) -> Space:
        """Return what needs a forest of its own; see ``Evaluator.suggested``."""
        return structural(space, self._problem.engine.name)

    def evaluate(
        self,
        problem: Problem,
        space: Space,
        number: int,
        params: Mapping[str, Scalar],
        *,
        give_up: GiveUp,
        stop: Callable[[], bool],
    ) -> Trial | None:
        """Score one trial; see ``Evaluator.evaluate``."""
        # Here, since they need scikit-learn.
        from dmls_core.search.nested.candidate import Candidate
        from dmls_core.search.nested.ground import survey

        layout = self._layout
        if self._field is None:
            self._field = survey(self._problem, space, len(layout.cuts))
        candidate = Candidate(problem, layout, self._field, number, dict(params))
        try:
            for step, trees in enumerate(_steps(layout.sizes[-1], len(problem.truth)), start=1):
                if stop():
                    return None
                candidate.grow(trees)
                if trees < layout.sizes[-1] and give_up(step, candidate.foretold()):
                    return candidate.trial("pruned", f"given up after {trees} trees")
        except DataError as error:
            return candidate.failed(error)
        return candidate.trial("finished")


def _steps(trees: int, rows: int) -> list[int]:
    first = rungs.first_rung(trees, trees, rows)
    counts = {max(first, trees // REDUCTION**back) for back in range(STEPS)}
    return sorted(counts)
