"""Nested search: one grown forest answers every smaller one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from dmls_core.search.callbacks import ShouldStop, never_stop
from dmls_core.search.forest.space import partition_space
from dmls_core.search.space import Space
from dmls_core.search.strategies import SearchStrategy
from dmls_core.search.task import SearchOutcome, SearchTask, Step, ignore_progress
from dmls_core.search.trial import Trial, contiguous_trials


@dataclass(frozen=True, slots=True)
class NestedForestSearcher:
    """Searches forests; see ``Searcher``.

    Every configuration gets a few trees; the worse ones are dropped rung by rung, and the winner grows on.
    The score of each number of trees, and of each pruning of them, is read from the same forest.

    Attributes:
        plan: what suggests configurations.
    """

    plan: SearchStrategy = field(default_factory=lambda: SearchStrategy("tpe"))

    def run(
        self,
        task: SearchTask,
        space: Space,
        n_trials: int,
        *,
        done: Sequence[Trial] = (),
        timeout: float | None = None,
        enough: ShouldStop = never_stop,
        on_trial: Callable[[Trial], None],
        on_step: Callable[[Step], None] = ignore_progress,
        stop: Callable[[], bool],
    ) -> SearchOutcome:
        """Search; see ``Searcher.run``. ``on_trial`` is told again of a trial that has gone further."""
        # Here, since they need scikit-learn.
        from dmls_core.search.forest.first import FirstRung
        from dmls_core.search.forest.model import cut_model
        from dmls_core.search.forest.narrow import narrow
        from dmls_core.search.forest.scoring import prepare_scoring

        trials = contiguous_trials(done)
        started = time.monotonic() - sum(trial.seconds for trial in trials)

        def late() -> bool:
            return timeout is not None and time.monotonic() - started >= timeout

        def over() -> bool:
            return stop() or (bool(trials) and (late() or enough(trials)))

        layout = partition_space(task, space)
        rows = prepare_scoring(task, space, len(layout.cuts))
        winner = None
        if not any(trial.state == "complete" and trial.same_as is None for trial in trials):
            first = FirstRung(self.plan, task, layout, rows, n_trials)
            first.run(trials, on_trial, on_step, over)
            if not stop():
                winner = narrow(
                    task, layout, first, trials, on_trial=on_trial, on_step=on_step, late=late, stop=stop
                )
        outcome = SearchOutcome.of(task, space, trials)
        if not rows.out_of_bag:
            return outcome
        return replace(outcome, fitted=cut_model(task, space, layout, rows, winner, outcome.best))
