"""The first rung: a few trees for every configuration that the sampler suggests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from dmls_core.errors import DataError
from dmls_core.search.forest import halving
from dmls_core.search.forest.configuration import Candidate
from dmls_core.search.forest.scoring import ScoringData
from dmls_core.search.forest.space import PartitionedSpace
from dmls_core.search.grid import grid_points
from dmls_core.search.sequential import FAILURES
from dmls_core.search.strategies import SearchStrategy
from dmls_core.search.task import SearchTask, Step
from dmls_core.search.trial import Trial
from dmls_core.spec.definitions import NONE, Scalar
from dmls_core.spec.hyperparameters import space_size

HELD_BYTES = 256 * 2**20
"""Memory for forests that may go on; those for which there is no room are grown again if they do."""

SAME: Mapping[tuple[str, Scalar], Scalar] = {("criterion", "log_loss"): "entropy"}
"""What scikit-learn takes for the same as another value of a hyperparameter."""


class FirstRung:
    """Gives every configuration its first trees.

    Attributes:
        trees: how many these are.
        held: by number, candidates that may go on and need not be grown again.
    """

    def __init__(
        self,
        plan: SearchStrategy,
        task: SearchTask,
        layout: PartitionedSpace,
        field: ScoringData,
        n_trials: int,
    ) -> None:
        self._plan = plan
        self._task = task
        self._layout = layout
        self._field = field
        self._n_trials = n_trials
        size = space_size(layout.structural.searched)
        self._whole = size is not None and size <= n_trials
        self._configurations = n_trials if size is None else min(size, n_trials)
        self.trees = halving.first_rung(layout.sizes[-1], self._configurations, len(task.truth))
        self.held: dict[int, Candidate] = {}

    def run(
        self,
        trials: list[Trial],
        on_trial: Callable[[Trial], None],
        on_step: Callable[[Step], None],
        enough: Callable[[], bool],
    ) -> None:
        """Append trials to ``trials`` until there are as many as asked for, or ``enough`` says so."""
        told = [_as_told(trial) for trial in trials]
        known = {self._key(trial.params): trial.number for trial in reversed(trials)}
        for number, params in self._suggestions(told):
            if self._all_there(trials) or enough():
                break
            key = self._key(params)
            trial = (
                repeat(trials[known[key]], number, params) if key in known else self._start(number, params)
            )
            known.setdefault(key, number)
            trials.append(trial)
            told.append(_as_told(trial))
            on_step(self._step(trials))
            on_trial(trial)

    def _step(self, trials: Sequence[Trial]) -> Step:
        fresh = [trial.seconds for trial in trials if trial.same_as is None]
        left = max(0, self._configurations - len(fresh))
        further = halving.room(self._configurations)
        ahead = left * self.trees + halving.trees_ahead(further, self.trees, self._layout.sizes)
        return Step(ahead * sum(fresh) / len(fresh) / self.trees, left + further, self.trees)

    def candidate(self, trial: Trial) -> Candidate:
        """Return the candidate of a trial of this rung; it is grown again if it was not held."""
        held = self.held.pop(trial.number, None)
        if held is not None:
            return held
        structural = {name: trial.params[name] for name in self._layout.structural.searched}
        candidate = Candidate(self._task, self._layout, self._field, trial.number, structural)
        candidate.seconds = trial.seconds
        candidate.grow(self.trees)
        return candidate

    def _all_there(self, trials: list[Trial]) -> bool:
        failed = [trial.state == "failed" for trial in trials]
        hopeless = sum(failed) > self._n_trials or sum(failed[-FAILURES:]) == FAILURES
        return hopeless or len(failed) - sum(failed) >= self._n_trials

    def _suggestions(self, told: list[Trial]) -> Iterator[tuple[int, dict[str, Scalar]]]:
        structural = self._layout.structural
        if not structural.searched:
            yield from [(0, {})][len(told) :]
        elif self._whole or self._plan.sampler == "grid":
            points = list(grid_points(structural, self._task.seed))
            for number in range(len(told), max(self._n_trials, len(points))):
                yield number, points[number % len(points)]
        else:
            from dmls_core.search.study import StudySuggestions

            for number, params, _ in StudySuggestions(self._plan, self._task, structural, told):
                yield number, params

    def _key(self, params: Mapping[str, Scalar]) -> str:
        asked = {name: params[name] for name in self._layout.structural.searched}
        asked = {name: SAME.get((name, value), value) for name, value in asked.items()}
        merged = self._layout.structural.fixed | asked
        engine = self._task.engine.device
        found = self._task.engine.effective(self._task.model, merged)
        if engine == "cpu":
            found["max_features"] = drawn_columns(found["max_features"], self._task.features.shape[1])
        return json.dumps(found, sort_keys=True)

    def _start(self, number: int, params: dict[str, Scalar]) -> Trial:
        candidate = Candidate(self._task, self._layout, self._field, number, params)
        try:
            candidate.grow(self.trees)
        except DataError as error:
            return candidate.failed(error)
        self._hold(candidate)
        return candidate.trial("pruned", f"the first {self.trees} trees")

    def _hold(self, candidate: Candidate) -> None:
        self.held[candidate.number] = candidate
        sign = -1 if self._task.direction == "maximize" else 1
        order = sorted(self.held.values(), key=lambda one: (sign * one.intermediate_values[0], one.number))
        room, size = halving.room(self._configurations), 0
        for place, one in enumerate(order):
            size += one.nbytes
            if place >= room or size > HELD_BYTES:
                del self.held[one.number]


def drawn_columns(value: Scalar, columns: int) -> Scalar:
    """Return how many columns a split of scikit-learn's trees may choose from.

    Args:
        value: of ``max_features``.
        columns: how many there are.
    """
    if value == NONE:
        return columns
    if value in {"sqrt", "log2"}:
        return max(1, int(np.sqrt(columns) if value == "sqrt" else np.log2(columns)))
    return max(1, int(value * columns)) if isinstance(value, float) else value


def _as_told(trial: Trial) -> Trial:
    """Return a trial as the sampler sees it: by its score on the first rung, where all are alike."""
    return (
        trial
        if trial.state == "failed"
        else replace(trial, state="complete", value=trial.intermediate_values[0])
    )


def repeat(first: Trial, number: int, params: Mapping[str, Scalar]) -> Trial:
    """Return the trial of a configuration that was tried before, in the words that it was suggested in."""
    return replace(first, number=number, params={**first.params, **params}, seconds=0.0, same_as=first.number)
