"""What a user changes for one run is validated as a spec is."""

from __future__ import annotations

import pytest

from dmls_core.errors import SpecError
from dmls_core.models import CATALOGUE, load_spec
from dmls_core.models.load import change_spec
from dmls_core.spec import Choice, Range, Spec

RICH = b"""model = ["random-forest-classifier", "xgboost-classifier"]
n_trials = 4
[columns]
features = ["a", "b"]
target = "y"
time = "t"
[max_depth]
min = 1
max = 4
[xgboost-classifier.learning_rate]
min = 0.1
max = 0.2
log = true
[search]
early_stop = 3
seed = 2
[tags]
a = "b"
[data]
path = "data/{date}.csv"
window = "all"
[schedule]
cron = "@daily"
[expectations.columns.a]
min = 0
[deploy]
mode = "auto"
min_improvement = -0.01
[owner]
name = "x"
[drift]
threshold = 0.3
"""


@pytest.fixture
def rich() -> Spec:
    return load_spec(RICH)


@pytest.mark.parametrize("model", sorted(CATALOGUE))
def test_a_written_spec_is_equivalent(model: str):
    spec = load_spec(f'model = "{model}"\n[columns]\ntarget = "y"\n'.encode())
    again = change_spec(spec, {"seed": spec.search.seed}).spec
    assert again == spec
    assert again.sha256 == spec.sha256


def test_a_written_spec_with_every_key_is_equivalent(rich: Spec):
    again = change_spec(rich, {"seed": 2}).spec
    assert again.sha256 == rich.sha256


def test_changes_override_the_spec_of_the_job(rich: Spec):
    change = change_spec(
        rich,
        {
            "n_trials": 9,
            "seed": 7,
            "data": {"window": 2},
            "hyperparameters": {
                "max_depth": {"value": 3},
                "xgboost-classifier": {"learning_rate": {"min": 0.3, "max": 0.4}},
            },
        },
    )
    forest, boosted = change.spec.models
    assert (change.spec.n_trials, change.spec.search.seed, change.spec.data.window) == (9, 7, 2)
    assert forest.hyperparameters["max_depth"] == boosted.hyperparameters["max_depth"] == Choice(values=(3,))
    assert boosted.searched == {"learning_rate": Range(min=0.3, max=0.4)}
    assert change.spec.data.path == rich.data.path
    assert (change.spec.deploy, change.spec.tags, change.deploy) == (rich.deploy, rich.tags, False)
    assert change.spec.sha256 != rich.sha256


def test_requesting_a_deployment_keeps_the_spec(rich: Spec):
    change = change_spec(rich, {"deploy": True})
    assert change.deploy
    assert change.spec is rich


@pytest.mark.parametrize(
    ("changes", "key", "words"),
    [
        ({"sed": 3}, "run.sed", "did you mean seed"),
        ({"seed": -1}, "search.seed", "at least 0"),
        ({"n_trials": "many"}, "n_trials", "integer"),
        ({"n_trials": 1}, "n_trials", "number of models"),
        ({"deploy": "yes"}, "run.deploy", "true or false"),
        ({"hyperparameters": {"max_dept": {"value": 3}}}, "max_dept", "did you mean max_depth"),
        ({"hyperparameters": {"max_depth": {"min": 3}}}, "max_depth.max", "min and max"),
        ({"hyperparameters": {"max_depth": 3}}, "max_depth", "table"),
        ({"hyperparameters": {"search": {"folds": 9}}}, "hyperparameters.search", "not a hyperparameter"),
        ({"data": {"path": "../other.csv"}}, "data.path", "in the spec's folder"),
        ({"data": {"window": 0}}, "run.data.window", "1 to 1,000"),
        ({"data": {"pth": "x"}}, "run.data.pth", "did you mean path"),
    ],
)
def test_wrong_changes_are_reported_like_wrong_specs(rich: Spec, changes, key, words):
    with pytest.raises(SpecError) as caught:
        change_spec(rich, changes)
    (issue,) = caught.value.issues
    assert issue.key == key
    assert issue.file == "the run's configuration"
    assert words in str(issue)


def test_all_wrong_changes_are_reported_at_once(rich: Spec):
    with pytest.raises(SpecError) as caught:
        change_spec(rich, {"seed": -1, "n_trials": 0, "hyperparameters": {"max_depth": {"min": 5, "max": 2}}})
    assert {issue.key.partition(".")[0] for issue in caught.value.issues} == {
        "search",
        "n_trials",
        "max_depth",
    }
