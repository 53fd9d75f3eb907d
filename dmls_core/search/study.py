"""Suggestions from an Optuna study in memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import TrialState

from dmls_core.search.objective import ShouldPrune
from dmls_core.search.space import Space
from dmls_core.search.strategies import REDUCTION, SearchStrategy
from dmls_core.search.task import SearchTask
from dmls_core.search.trial import Trial
from dmls_core.spec.definitions import Scalar
from dmls_core.spec.hyperparameters import Choice, Hyperparameter

optuna.logging.set_verbosity(optuna.logging.WARNING)

STATES = {"complete": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}


class StudySuggestions:
    """Iterates over what the sampler suggests after all ``trials`` there are at that moment.

    Each suggestion is drawn with a seed of its own, made of the task's seed and the trial's number, and
    trials of an earlier attempt are told again step by step: so a resumed search suggests what an unbroken
    one would have, and gives up the same trials.

    Args:
        plan: which sampler, and what gives trials up.
        task: gives the seed and the direction.
        space: what to suggest from; it has at least one searched hyperparameter.
        trials: all trials so far; the caller appends each suggestion's outcome.
    """

    def __init__(self, plan: SearchStrategy, task: SearchTask, space: Space, trials: list[Trial]) -> None:
        self._plan = plan
        self._seed = task.seed
        self._words = {name: words_of(wanted) for name, wanted in space.searched.items()}
        self._distributions = {
            name: distribution_of(wanted, self._words[name]) for name, wanted in space.searched.items()
        }
        self._trials = trials
        # In memory, a tenth of what a journal or a database costs; the trials' own files are what stays.
        self._study = optuna.create_study(direction=task.direction, pruner=make_pruner(plan))

    def __iter__(self) -> Iterator[tuple[int, dict[str, Scalar], ShouldPrune]]:
        for number, trial in enumerate(self._trials):
            # CMA-ES learns from its own suggestions alone: they are made again, and are the same.
            if self._plan.sampler != "cma-es":
                words = {name: self._word(name, trial.params[name]) for name in self._words}
                self._study.enqueue_trial(words)
            asked = self._ask(number)
            self._tell(asked, trial, again=True)
        while True:
            number = len(self._trials)
            asked = self._ask(number)
            params = {name: self._value(name, word) for name, word in asked.params.items()}
            yield number, params, partial(reported, asked)
            outcome = self._trials[number]
            self._tell(asked, outcome, again=outcome.same_as is not None)

    def _ask(self, number: int) -> optuna.Trial:
        seed = int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0])
        self._study.sampler = make_sampler(self._plan, seed)
        return self._study.ask(self._distributions)

    def _tell(self, asked: optuna.Trial, outcome: Trial, *, again: bool) -> None:
        if again:
            for steps, score in enumerate(outcome.intermediate_values, start=1):
                reported(asked, steps, score)
        value = outcome.value if outcome.state == "complete" else None
        self._study.tell(asked, value, STATES[outcome.state])

    def _value(self, name: str, word: Scalar) -> Scalar:
        words = self._words[name]
        return words[str(word)] if words else word

    def _word(self, name: str, value: Scalar) -> Scalar:
        return repr(value) if self._words[name] else value


def reported(asked: optuna.Trial, steps: int, value: float) -> bool:
    """Tell the study how far a trial is; return whether to give it up."""
    # Each step of an evaluator is a rung of successive halving, and those are powers of its factor.
    asked.report(value, REDUCTION ** (steps - 1))
    return asked.should_prune()


def make_sampler(plan: SearchStrategy, seed: int, *, together: bool = False) -> optuna.samplers.BaseSampler:
    """Return the sampler that suggests the next trial.

    Args:
        plan: which one.
        seed: of its random numbers.
        together: whether other trials are under way at the same time, which it keeps away from.
    """
    match plan.sampler:
        case "random":
            return optuna.samplers.RandomSampler(seed=seed)
        case "cma-es":
            return optuna.samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)
        case _:
            return optuna.samplers.TPESampler(seed=seed, constant_liar=together)


def make_pruner(plan: SearchStrategy) -> optuna.pruners.BasePruner:
    """Return what gives trials up."""
    if plan.pruning == "halving":
        return optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=REDUCTION)
    return optuna.pruners.NopPruner()


def words_of(wanted: Hyperparameter) -> dict[str, Scalar]:
    """Return a word for each value of a choice that Optuna could not tell apart (1, 1.0, true)."""
    if not isinstance(wanted, Choice) or len(set(wanted.values)) == len(wanted.values):
        return {}
    return {repr(value): value for value in wanted.values}


def distribution_of(wanted: Hyperparameter, words: dict[str, Scalar]) -> BaseDistribution:
    """Return what Optuna suggests values from."""
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
