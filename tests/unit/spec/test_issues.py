"""All issues come at once, in the order of the file."""

from __future__ import annotations

import pytest

from dmls_core.errors import SpecError
from dmls_core.models import load_spec

BAD = b"""
modle = "x"
model = "random-forest-clasifier"
n_trials = "5"
n_estimators = 100
shapes = 3

[column]
target = "species"

[columns]
features = ["a", "b", "a", 3]
target = "a"
categorical = ["bb"]
traget = "x"

[max_detph]
min = 3
max = 3

[max_depth]
low = 3
max = 2.0

[min_samples_leaf]
values = [1, 1.0, true,
  "x", 1, 0.2]

[learning_rate]
value = 0.1

[search]
metric = "acuracy"
strategy = "gird"
workers = 0

[evaluation]
holdout = 1.5

[resources]
memory = "8 gigs"
engine = "cpu"
gpus = 2

[schedule]
cron = "99 * * *"
timezone = "Europe/Viena"

[tags]
"mlflow.x" = 3

[expectations.columns.petal]
min = "a"
mxa = 3
pattern = "("

[deploy]
mode = "automatic"
"""


def test_every_issue_has_a_position() -> None:
    with pytest.raises(SpecError) as raised:
        load_spec(BAD, "flowers.toml")
    issues = raised.value.issues
    assert [(issue.line, issue.column, issue.key) for issue in issues] == [
        (2, 1, "modle"),
        (3, 1, "model"),
        (4, 1, "n_trials"),
        (5, 1, "n_estimators"),
        (6, 1, "shapes"),
        (8, 2, "column"),
        (12, 28, "columns.features[3]"),
        (15, 1, "columns.traget"),
        (17, 2, "max_detph"),
        (21, 2, "max_depth.min"),
        (22, 1, "max_depth.low"),
        (23, 1, "max_depth.max"),
        (26, 14, "min_samples_leaf.values[1]"),
        (26, 19, "min_samples_leaf.values[2]"),
        (27, 3, "min_samples_leaf.values[3]"),
        (27, 8, "min_samples_leaf.values[4]"),
        (29, 2, "learning_rate"),
        (33, 1, "search.metric"),
        (34, 1, "search.strategy"),
        (35, 1, "search.workers"),
        (38, 1, "evaluation.holdout"),
        (41, 1, "resources.memory"),
        (43, 1, "resources.gpus"),
        (46, 1, "schedule.cron"),
        (47, 1, "schedule.timezone"),
        (50, 1, 'tags."mlflow.x"'),
        (50, 1, 'tags."mlflow.x"'),
        (53, 1, "expectations.columns.petal.min"),
        (54, 1, "expectations.columns.petal.mxa"),
        (55, 1, "expectations.columns.petal.pattern"),
        (58, 1, "deploy.mode"),
    ]
    assert {issue.file for issue in issues} == {"flowers.toml"}


@pytest.mark.parametrize(
    ("model", "hint"),
    [
        ("linear-regression", "auto-regressor"),
        ("xgboost-regression", "xgboost-regressor"),
        ("logistic-regression", "auto-classifier"),
        ("xgboost-classification", "xgboost-classifier"),
    ],
)
def test_another_model_for_the_same_task_is_suggested(model: str, hint: str) -> None:
    with pytest.raises(SpecError) as raised:
        load_spec(f'model = "{model}"\n[columns]\ntarget = "y"\n'.encode())
    assert hint in raised.value.issues[0].hint


def test_an_issue_has_the_found_value_the_expected_one_and_a_hint() -> None:
    with pytest.raises(SpecError) as raised:
        load_spec(BAD)
    issue = raised.value.issues[1]
    assert issue.message == "is not a known model"
    assert issue.found == '"random-forest-clasifier"'
    assert issue.expected.startswith("auto-classifier, auto-regressor, random-forest-classifier")
    assert issue.hint == "did you mean random-forest-classifier?"
    assert str(issue) == (
        "spec.toml:3:1: model: is not a known model "
        f"(found {issue.found}; expected {issue.expected}; {issue.hint})"
    )
