"""Several models in one process: each searches for as many trials as it is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from dmls_core.errors import DataError
from dmls_core.search.callbacks import ShouldStop, never_stop
from dmls_core.search.candidate import ModelCandidate
from dmls_core.search.competition.rungs import Entry, next_turn
from dmls_core.search.sequential import SequentialSearcher
from dmls_core.search.trial import Trial, contiguous_trials


def compete(
    candidates: Sequence[ModelCandidate],
    n_trials: int,
    *,
    done: Sequence[Trial] = (),
    timeout: float | None = None,
    enough: ShouldStop = never_stop,
    on_trial: Callable[[Trial], None],
    stop: Callable[[], bool],
) -> list[Trial]:
    """Search until ``n_trials`` trials of all models together have a value; see ``Searcher.run``.

    The same candidates, seeds and trials give the same trials, whether in one go or resumed.

    Args:
        candidates: the models; each has one trial at least.
        n_trials: trials wanted in all.
        done: trials of an earlier attempt, numbered over all models.
        timeout: seconds after which no trial is started, those of ``done`` included.
        enough: asked before each trial, once every model has one; no further one is started if it says so.
        on_trial: called right after each new trial; it keeps it.
        stop: asked between fits.

    Returns:
        All trials, numbered over all models; each names its model.
    """
    field = {candidate.model: _Contestant(candidate) for candidate in candidates}
    trials = contiguous_trials(done)
    for trial in trials:
        field[trial.model].trials.append(trial)

    def over(_: Sequence[Trial] = ()) -> bool:
        return len({trial.model for trial in trials}) == len(candidates) and enough(trials)

    while not stop() and not over():
        entries = [contestant.entry() for contestant in field.values()]
        turn = next_turn(entries, n_trials, candidates[0].task.better)
        if isinstance(turn, str):
            break
        left = None if timeout is None else timeout - sum(trial.seconds for trial in trials)
        field[turn.model].go_on(turn.until, trials, left, over, on_trial, stop)
    return trials


class _Contestant:
    """One model: its trials under the numbers that they have among all, and its own search under its own."""

    def __init__(self, candidate: ModelCandidate) -> None:
        self.trials: list[Trial] = []
        self._arm = candidate
        self._closed = False

    def entry(self) -> Entry:
        values = [t.value if t.state == "complete" else None for t in self.trials if t.state != "failed"]
        return Entry(self._arm.model, tuple(values), closed=self._closed)

    def go_on(
        self,
        until: int,
        trials: list[Trial],
        left: float | None,
        enough: ShouldStop,
        on_trial: Callable[[Trial], None],
        stop: Callable[[], bool],
    ) -> None:
        """Search until ``until`` own trials have a value, or there is nothing to search any more."""

        def keep(own: Trial) -> None:
            same_as = None if own.same_as is None else self.trials[own.same_as].number
            trial = replace(own, number=len(trials), same_as=same_as, model=self._arm.model)
            self.trials.append(trial)
            trials.append(trial)
            on_trial(trial)

        # A search for its own trials that failed altogether leaves the field to the others.
        spent = sum(trial.seconds for trial in self.trials)
        try:
            SequentialSearcher(self._arm.plan, self._arm.evaluator).run(
                self._arm.task,
                self._arm.space,
                until,
                done=self._own(),
                timeout=None if left is None else left + spent,
                enough=enough,
                on_trial=keep,
                stop=stop,
            )
        except DataError:
            self._closed = not any(trial.state != "failed" for trial in self.trials)
        self._closed |= self.entry().taken < until

    def _own(self) -> list[Trial]:
        own = {trial.number: number for number, trial in enumerate(self.trials)}
        return [
            replace(
                trial, number=own[trial.number], same_as=None if trial.same_as is None else own[trial.same_as]
            )
            for trial in self.trials
        ]
