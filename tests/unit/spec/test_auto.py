"""auto-classifier and auto-regressor: names of a list of models."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dmls_core.errors import ValidationIssue
from dmls_core.models import load_spec
from dmls_core.spec.definitions import AUTO, worth_trying

Issues = Callable[[str], list[ValidationIssue]]

COLUMNS = '[columns]\ntarget = "y"\n'


@pytest.mark.parametrize(
    ("n_trials", "families"),
    [
        ("", ["lightgbm", "xgboost", "extra-trees", "random-forest", "catboost"]),
        ("n_trials = 4\n", ["lightgbm", "xgboost", "extra-trees", "random-forest"]),
        ("n_trials = 2\n", ["lightgbm", "xgboost"]),
        ("n_trials = 1\n", ["lightgbm"]),
    ],
)
@pytest.mark.parametrize("task", ["classifier", "regressor"])
def test_auto_stands_for_models_that_compete(task: str, n_trials: str, families: list[str]) -> None:
    names = [f"{family}-{task}" for family in families]
    automatic = load_spec(f'model = "auto-{task}"\n{n_trials}{COLUMNS}'.encode())
    assert [model.name for model in automatic.models] == names
    several = '[search]\nensemble = "auto"\n' if len(names) > 1 else ""
    listed = load_spec(f"model = {names}\n{n_trials}{COLUMNS}{several}".encode())
    assert automatic.sha256 == listed.sha256


@pytest.mark.parametrize(
    ("models", "n_classes", "columns", "tried"),
    [
        (AUTO["auto-classifier"], 2, 10, False),
        (AUTO["auto-classifier"], 3, 10, True),
        (AUTO["auto-classifier"], 10, 80, True),
        (AUTO["auto-classifier"], 10, 81, False),
        (AUTO["auto-classifier"][1:], 2, 10, True),
    ],
)
def test_auto_tries_catboost_of_several_classes_if_its_rounds_are_quick(
    models: tuple[str, ...], n_classes: int, columns: int, tried: bool
) -> None:
    assert worth_trying(models, n_classes, columns) == (models if tried else models[:-1])
    assert models[-1] == "catboost-classifier"
    assert worth_trying(AUTO["auto-regressor"], 0, 9_999) == AUTO["auto-regressor"]


def test_on_nodes_auto_leaves_out_what_does_not_run_there() -> None:
    spec = load_spec(f'model = "auto-regressor"\n{COLUMNS}[resources]\nnodes = 2\n'.encode())
    assert [model.name for model in spec.models] == [
        f"{family}-regressor" for family in ("lightgbm", "xgboost", "extra-trees", "random-forest")
    ]


@pytest.mark.parametrize("value", ["true", "false"])
def test_auto_leaves_ensemble_as_the_spec_has_it(value: str) -> None:
    spec = load_spec(f'model = "auto-regressor"\n{COLUMNS}[search]\nensemble = {value}\n'.encode())
    assert spec.search.ensemble is (value == "true")


def test_ensemble_is_auto_or_a_boolean(issues_of: Issues) -> None:
    text = f'model = "auto-regressor"\n{COLUMNS}[search]\nensemble = '
    for value in ('"mean"', "1"):
        (issue,) = issues_of(text + value)
        assert issue.key == "search.ensemble"
        assert str(issue.expected) == 'true, false or "auto"'


def test_auto_needs_the_task(issues_of: Issues) -> None:
    (issue,) = (issue for issue in issues_of('model = "auto"\n' + COLUMNS) if issue.key == "model")
    assert "auto-classifier, auto-regressor" in issue.expected
    assert issue.hint == "write auto-classifier to predict classes, auto-regressor to predict numbers"
