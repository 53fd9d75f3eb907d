"""Nested search: one grown forest answers every smaller one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from dmls_core.search.early_stop import Enough, never_enough
from dmls_core.search.interface import Problem, SearchOutcome, Step, untold
from dmls_core.search.nested.axes import lay_out
from dmls_core.search.space import Space
from dmls_core.search.strategies import Plan
from dmls_core.search.trial import Trial, unbroken


@dataclass(frozen=True, slots=True)
class NestedForestSearcher:
    """Searches forests; see ``Searcher``.

    Every configuration gets a few trees; the worse ones are dropped rung by rung, and the winner grows on.
    The score of each number of trees, and of each pruning of them, is read from the same forest.

    Attributes:
        plan: what suggests configurations.
    """

    plan: Plan = field(default_factory=lambda: Plan("tpe"))

    def run(
        self,
        problem: Problem,
        space: Space,
        n_trials: int,
        *,
        done: Sequence[Trial] = (),
        timeout: float | None = None,
        enough: Enough = never_enough,
        on_trial: Callable[[Trial], None],
        on_step: Callable[[Step], None] = untold,
        stop: Callable[[], bool],
    ) -> SearchOutcome:
        """Search; see ``Searcher.run``. ``on_trial`` is told again of a trial that has gone further."""
        # Here, since they need scikit-learn.
        from dmls_core.search.nested.first import FirstRung
        from dmls_core.search.nested.ground import survey
        from dmls_core.search.nested.model import cut_model
        from dmls_core.search.nested.narrow import narrow

        trials = unbroken(done)
        started = time.monotonic() - sum(trial.seconds for trial in trials)

        def late() -> bool:
            return timeout is not None and time.monotonic() - started >= timeout

        def over() -> bool:
            return stop() or (bool(trials) and (late() or enough(trials)))

        layout = lay_out(problem, space)
        rows = survey(problem, space, len(layout.cuts))
        winner = None
        if not any(trial.state == "finished" and trial.same_as is None for trial in trials):
            first = FirstRung(self.plan, problem, layout, rows, n_trials)
            first.run(trials, on_trial, on_step, over)
            if not stop():
                winner = narrow(
                    problem, layout, first, trials, on_trial=on_trial, on_step=on_step, late=late, stop=stop
                )
        outcome = SearchOutcome.of(problem, space, trials)
        if not rows.out_of_bag:
            return outcome
        return replace(outcome, fitted=cut_model(problem, space, layout, rows, winner, outcome.best))
