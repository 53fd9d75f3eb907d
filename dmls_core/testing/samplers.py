"""Tests that every search strategy must pass."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import pytest

from dmls_core.models import CATALOGUE, load_spec
from dmls_core.models.catalogue import load_engine
from dmls_core.models.metrics import scorer
from dmls_core.search.candidate import ModelCandidate, make_candidate
from dmls_core.search.objective import Objective, ShouldPrune
from dmls_core.search.optimize import search
from dmls_core.search.samplers.strategy import SearchStrategy, load_strategy
from dmls_core.search.study.storage import LocalStorage
from dmls_core.search.study.study import Claim, SearchStudy
from dmls_core.search.task import SearchTask, Space, make_folds
from dmls_core.search.trial import State, Trial
from dmls_core.spec.definitions import Choice, Range

STEPS = 3

SPACE = Space(
    {
        "max_depth": Range(min=1, max=40),
        "min_samples_leaf": Range(min=1, max=200, log=True),
        "max_features": Range(min=0.1, max=1.0),
        "criterion": Choice(values=("gini", "entropy")),
    },
    {},
)


def make_task(model: str = "random-forest-classifier") -> SearchTask:
    """Return a task of 90 rows and two classes."""
    generator = np.random.default_rng(0)
    features = generator.normal(size=(90, 4)).astype(np.float32)
    target = (features[:, 0] + features[:, 1] * features[:, 2] > 0).astype(np.int32)
    return SearchTask(
        model=CATALOGUE[model],
        engine=load_engine("cpu", model),
        features=features,
        target=target,
        truth=target,
        n_classes=2,
        folds=make_folds(target, STEPS, n_classes=2, seed=0),
        score=scorer("accuracy"),
        direction="maximize",
        seed=7,
        threads=1,
    )


class _Peak(Objective):
    """Scores hyperparameters without a fit, in three steps; the best ones are in the middle of the space."""

    def identity(self, params: Mapping[str, Any]) -> str:
        return json.dumps(dict(params), sort_keys=True)

    def evaluate(
        self,
        number: int,
        params: Mapping[str, Any],
        *,
        should_prune: ShouldPrune,
        stop: Callable[[], bool],  # noqa: ARG002
    ) -> Trial:
        score = -abs(params["max_depth"] - 20) / 20 - abs(params["max_features"] - 0.5)
        values: list[float] = []
        while len(values) < STEPS:
            values.append(score)
            if len(values) < STEPS and should_prune(len(values), score):
                break
        state: State = "complete" if len(values) == STEPS else "pruned"
        return Trial(number, state, "cpu", params, score, tuple(values), intermediate_values=tuple(values))


def _content(trials: tuple[Trial, ...]) -> list[tuple[Any, ...]]:
    return [(trial.number, trial.state, dict(trial.params), trial.value) for trial in trials]


class SamplerSuite:
    """Tests of a strategy of ``[search] strategy``; a subclass names it as its entry point does.

    Examples:
        pytest runs every test; here, one is called by hand:

        >>> from dmls_core.testing import SamplerSuite
        >>> class TestRandom(SamplerSuite):
        ...     name = "random"
        >>> TestRandom().test_trials_are_within_the_space()
    """

    name: ClassVar[str]

    n_trials: ClassVar[int] = 12

    @property
    def strategy(self) -> SearchStrategy:
        return load_strategy(self.name)

    def candidate(self) -> ModelCandidate:
        return ModelCandidate(_Peak(make_task(), SPACE), self.strategy)

    # -- the tests -------------------------------------------------------------------------------------

    def test_it_is_registered(self) -> None:
        """The entry point yields a strategy that can be built without arguments."""
        assert isinstance(self.strategy, SearchStrategy)

    def test_a_spec_may_name_it(self) -> None:
        text = (
            'model = "random-forest-classifier"\n[columns]\ntarget = "y"\n'
            f'[search]\nstrategy = "{self.name}"\n[max_depth]\nmin = 2\nmax = 9\n'
        )
        assert load_spec(text.encode()).search.strategy == self.name

    def test_trials_are_within_the_space(self) -> None:
        _, outcome = search([self.candidate()], self.n_trials)

        assert outcome.scored == self.n_trials
        assert all(SPACE.contains(trial.params) for trial in outcome.trials)

    def test_the_seed_determines_the_trials(self) -> None:
        _, outcome = search([self.candidate()], self.n_trials)
        _, again = search([self.candidate()], self.n_trials)

        assert _content(again.trials) == _content(outcome.trials)

    @pytest.mark.parametrize("done", [1, 2, 7])
    def test_an_interrupted_search_continues_with_the_same_trials(self, done: int) -> None:
        """A trainer that was killed after ``done`` trials finds those that it would have found."""
        _, outcome = search([self.candidate()], self.n_trials)
        _, resumed = search([self.candidate()], self.n_trials, earlier_trials=outcome.trials[:done])

        assert _content(resumed.trials) == _content(outcome.trials)

    def test_two_workers_share_a_study(self) -> None:
        """Each worker has samplers of its own, and suggests while a trial of the other one runs."""
        storage, trials = LocalStorage(), dict[int, Trial]()

        def keep(trial: Trial, _: bool) -> None:
            trials[trial.number] = trial

        workers = [
            SearchStudy(
                storage, "suite", [self.candidate()], self.n_trials, read_trials=lambda: (), keep=keep
            )
            for _ in range(2)
        ]
        for worker in workers:
            worker.join()
        for _ in range(self.n_trials // 2):
            claims = [worker.claim(late=False)[1] for worker in workers]
            for worker, claim in zip(workers, claims, strict=True):
                assert isinstance(claim, Claim)
                worker.run(claim, lambda: False)

        assert sorted(trials) == list(range(self.n_trials))
        searched = [json.dumps(dict(trial.params), sort_keys=True) for trial in trials.values()]
        assert len(set(searched)) == self.n_trials

    @pytest.mark.parametrize("model", ["random-forest-classifier", "xgboost-classifier"])
    def test_it_searches_forests_and_boosted_trees(self, model: str) -> None:
        """Forests are suggested without what one forest covers, such as its number of trees."""
        space = Space({"n_estimators": Range(min=5, max=20), "max_features": Range(min=0.2, max=1.0)}, {})
        if model.startswith("xgboost"):
            space = Space({"n_estimators": Range(min=5, max=20), "max_depth": Range(min=1, max=9)}, {})
        _, outcome = search([make_candidate(self.name, make_task(model), space, 4)], 4)

        assert outcome.scored == 4
        assert space.contains(outcome.best.params)
