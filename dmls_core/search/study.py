"""Suggestions from an Optuna study: the only module that imports Optuna."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import TrialState

from dmls_core.search.interface import Problem
from dmls_core.search.space import Space
from dmls_core.search.trial import Trial
from dmls_core.spec.definitions import Scalar
from dmls_core.spec.hyperparameters import Choice, Hyperparameter

optuna.logging.set_verbosity(optuna.logging.WARNING)

STATES = {"finished": TrialState.COMPLETE, "failed": TrialState.FAIL}


class StudySuggestions:
    """Iterates over what the sampler suggests after all ``trials`` there are at that moment.

    Each suggestion is drawn with a seed of its own, made of the problem's seed and the trial's number: so
    a resumed search suggests what an unbroken one would have.

    Args:
        strategy: which sampler.
        problem: gives the seed and the direction.
        space: what to suggest from; it has at least one searched hyperparameter.
        trials: all trials so far; the caller appends each suggestion's outcome.
    """

    def __init__(
        self, strategy: Literal["tpe", "random"], problem: Problem, space: Space, trials: list[Trial]
    ) -> None:
        self._strategy = strategy
        self._seed = problem.seed
        self._words = {name: _words(wanted) for name, wanted in space.searched.items()}
        self._distributions = {
            name: _distribution(wanted, self._words[name]) for name, wanted in space.searched.items()
        }
        self._trials = trials
        # In memory, a tenth of what a journal or a database costs; the trials' own files are what stays.
        self._study = optuna.create_study(direction=problem.direction)

    def __iter__(self) -> Iterator[tuple[int, dict[str, Scalar]]]:
        for trial in self._trials:
            self._study.add_trial(self._frozen(trial))
        while True:
            number = len(self._trials)
            self._study.sampler = self._sampler(number)
            asked = self._study.ask(self._distributions)
            yield number, {name: self._value(name, word) for name, word in asked.params.items()}
            outcome = self._trials[number]
            self._study.tell(asked, outcome.value, STATES[outcome.state])

    def _sampler(self, number: int) -> optuna.samplers.BaseSampler:
        seed = int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0])
        if self._strategy == "random":
            return optuna.samplers.RandomSampler(seed=seed)
        return optuna.samplers.TPESampler(seed=seed)

    def _frozen(self, trial: Trial) -> optuna.trial.FrozenTrial:
        return optuna.trial.create_trial(
            state=STATES[trial.state],
            value=trial.value,
            params={name: self._word(name, trial.params[name]) for name in self._distributions},
            distributions=self._distributions,
        )

    def _value(self, name: str, word: Scalar) -> Scalar:
        words = self._words[name]
        return words[str(word)] if words else word

    def _word(self, name: str, value: Scalar) -> Scalar:
        return repr(value) if self._words[name] else value


def _words(wanted: Hyperparameter) -> dict[str, Scalar]:
    """Return a word for each value of a choice that Optuna could not tell apart (1, 1.0, true)."""
    if not isinstance(wanted, Choice) or len(set(wanted.values)) == len(wanted.values):
        return {}
    return {repr(value): value for value in wanted.values}


def _distribution(wanted: Hyperparameter, words: dict[str, Scalar]) -> BaseDistribution:
    if isinstance(wanted, Choice):
        return CategoricalDistribution(tuple(words) or wanted.values)
    if wanted.log:
        kind = IntDistribution if wanted.integer else FloatDistribution
        return kind(wanted.min, wanted.max, log=True)
    if wanted.size is None:
        return FloatDistribution(wanted.min, wanted.max)
    step = wanted.step or 1
    high = wanted.min + step * (wanted.size - 1)
    return (
        IntDistribution(wanted.min, high, step=step)
        if wanted.integer
        else FloatDistribution(wanted.min, high, step=step)
    )
