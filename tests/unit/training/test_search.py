"""Why a search has fewer trials than the spec requests."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dmls_core.models import CATALOGUE, load_spec
from dmls_core.models.catalogue import load_engine
from dmls_core.search.candidate import ModelCandidate, expected_trials, make_candidate
from dmls_core.search.samplers.strategy import load_strategy
from dmls_core.search.task import Space
from dmls_core.search.trial import Trial
from dmls_core.spec import Choice, Range
from dmls_core.training.search import describe_shortfall
from tests.unit.search.boosting.test_objective import make_task

SPEC = 'model = ["random-forest-classifier", "lightgbm-classifier"]\nn_trials = 4\n[columns]\ntarget = "y"\n'
ROUNDS = Space({"n_estimators": Range(min=10, max=50)}, {})
WIDE = Space({"max_depth": Range(min=2, max=9), "learning_rate": Range(min=0.1, max=0.3)}, {})
CRITERIA = Space({"criterion": Choice(values=("gini", "entropy"))}, {})
LEAVES = Space({"num_leaves": Choice(values=(7, 15))}, {})


def candidates(space: Space, strategy: str = "auto") -> list[ModelCandidate]:
    task = make_task("lightgbm", 2, "accuracy")
    names = ("random-forest-classifier", "lightgbm-classifier")
    tasks = [replace(task, model=CATALOGUE[name], engine=load_engine("cpu", name)) for name in names]
    return [make_candidate(strategy, tasks[0], ROUNDS, 4), make_candidate(strategy, tasks[1], space, 4)]


def trials(*states: str) -> list[Trial]:
    models = ["random-forest-classifier", *["lightgbm-classifier"] * (len(states) - 1)]
    return [
        Trial(number, state, "cpu", {}, None if state == "failed" else 0.5, model=model)
        for number, (state, model) in enumerate(zip(states, models, strict=True))
    ]


@pytest.mark.parametrize(
    ("space", "strategy", "table", "states", "end"),
    [
        (
            ROUNDS,
            "auto",
            "",
            ("complete",) * 2,
            "are left to try: one fit scores all values of n_estimators",
        ),
        (LEAVES, "grid", "", ("complete",) * 3, "no other hyperparameters are left to try"),
        (WIDE, "auto", "[search]\ntimeout = 9", ("complete", "pruned"), ", by timeout"),
        (WIDE, "auto", "[search]\nearly_stop = 2", ("complete",) * 3, ", by early_stop"),
        (WIDE, "auto", "", ("complete", *["failed"] * 9), "trials, since too many failed"),
        (
            WIDE,
            "auto",
            "[search]\ntimeout = 9",
            ("complete", *["failed"] * 9),
            ", by timeout or since too many failed",
        ),
        (WIDE, "auto", "", ("complete",), "after 1 of 4 trials"),
    ],
    ids=["one fit", "grid", "timeout", "early stop", "failures", "either", "stopped"],
)
def test_why_trials_are_missing(
    space: Space, strategy: str, table: str, states: tuple[str, ...], end: str
) -> None:
    scored = sum(state != "failed" for state in states)
    text = describe_shortfall(
        load_spec((SPEC + table).encode()), candidates(space, strategy), trials(*states)
    )
    assert text.startswith(f"the search ended after {scored} of 4 trials")
    assert end in text


@pytest.mark.parametrize(
    ("model", "space", "strategy", "trials"),
    [
        ("random-forest-classifier", ROUNDS, "auto", 1),
        ("random-forest-classifier", CRITERIA, "grid", 12),
        ("lightgbm-classifier", ROUNDS, "tpe", 1),
        ("lightgbm-classifier", LEAVES, "grid", 2),
        ("lightgbm-classifier", LEAVES, "tpe", 12),
        ("lightgbm-classifier", WIDE, "auto", 12),
        ("lightgbm-classifier", Space({}, {}), "auto", 1),
    ],
)
def test_the_number_of_trials_is_told_before_the_search(model: str, space: Space, strategy: str, trials: int):
    engine = load_engine("cpu", model)
    assert expected_trials([(engine, space)], load_strategy(strategy), 12) == trials
    both = [(engine, space), (load_engine("cpu", "lightgbm-classifier"), LEAVES)]
    assert expected_trials(both, load_strategy("grid"), 12) <= trials + 2


def test_none_is_missing() -> None:
    assert describe_shortfall(load_spec(SPEC.encode()), candidates(WIDE), trials(*["pruned"] * 4)) == ""
