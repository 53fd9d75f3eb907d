"""Tables of hyperparameters: what they become, and what is said of those that are wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dmls_core.errors import ValidationIssue
from dmls_core.models import load_spec
from dmls_core.spec import Choice, Hyperparameter, Range, space_size

HEAD = 'model = "{}"\n[columns]\ntarget = "y"\n'
FOREST, BOOSTED = "random-forest-classifier", "xgboost-regressor"


def space(model: str, name: str, body: str) -> Hyperparameter:
    text = HEAD.format(model) + f"[{name}]\n{body}"
    return load_spec(text.encode()).models[0].hyperparameters[name]


@pytest.mark.parametrize(
    ("model", "name", "body", "expected"),
    [
        (FOREST, "n_estimators", "min = 50\nmax = 500", Range(min=50, max=500)),
        (FOREST, "n_estimators", "min = 50\nmax = 500\nstep = 50", Range(min=50, max=500, step=50)),
        (FOREST, "n_estimators", "min = 1\nmax = 500\nlog = true", Range(min=1, max=500, log=True)),
        (FOREST, "n_estimators", "value = 100", Choice(values=(100,))),
        (FOREST, "max_depth", 'values = [3, "none", 7]', Choice(values=(3, "none", 7))),
        (FOREST, "max_features", 'values = ["sqrt", 0.5, 1, 1.0]', Choice(values=("sqrt", 0.5, 1, 1.0))),
        (FOREST, "max_features", "min = 1\nmax = 4", Range(min=1, max=4)),
        (FOREST, "max_features", "min = 0.25\nmax = 1.0", Range(min=0.25, max=1.0)),
        (FOREST, "min_samples_leaf", "value = 0.5", Choice(values=(0.5,))),
        (FOREST, "bootstrap", "values = [true, false]", Choice(values=(True, False))),
        (FOREST, "criterion", 'value = "log_loss"', Choice(values=("log_loss",))),
        (BOOSTED, "learning_rate", "min = 1e-3\nmax = 1\nlog = true", Range(min=1e-3, max=1.0, log=True)),
        (BOOSTED, "subsample", "min = 0.5\nmax = 1\nstep = 0.1", Range(min=0.5, max=1.0, step=0.1)),
        (BOOSTED, "gamma", "value = 0", Choice(values=(0.0,))),
    ],
)
def test_tables_of_hyperparameters(model: str, name: str, body: str, expected: Hyperparameter) -> None:
    found = space(model, name, body)
    assert found == expected
    # 1 == 1.0 == True for Python, but not in a spec.
    assert repr(found) == repr(expected)


@pytest.mark.parametrize(
    ("body", "key", "words"),
    [
        ("[n_estimators]\nmin = 500\nmax = 50", "n_estimators.min", ["above max", "500", "less than 50"]),
        ("[n_estimators]\nmin = 50\nmax = 50", "n_estimators.max", ["same as min", "`value = 50`"]),
        ("[n_estimators]\nmin = 50", "n_estimators.max", ["missing next to min"]),
        ("[n_estimators]\nmax = 50", "n_estimators.min", ["missing next to max"]),
        ("[n_estimators]\nmin = 50.0\nmax = 100", "n_estimators.min", ["50.0", "an integer", "write 50"]),
        ("[n_estimators]\nmin = 0\nmax = 100", "n_estimators.min", ["out of bounds", "from 1 to 10,000"]),
        ("[n_estimators]\nmin = 1\nmax = 99999", "n_estimators.max", ["out of bounds", "99999"]),
        ("[n_estimators]\nmin = 1\nmax = 9\nstep = 0", "n_estimators.step", ["above 0"]),
        ("[n_estimators]\nmin = 1\nmax = 9\nstep = true", "n_estimators.step", ["above 0"]),
        ("[n_estimators]\nmin = 1\nmax = 9\nstep = 0.5", "n_estimators.step", ["must be an integer"]),
        ("[n_estimators]\nmin = 1\nmax = 9\nstep = 10", "n_estimators.step", ["wider than the range"]),
        ("[n_estimators]\nmin = 1\nmax = 9\nlog = 1", "n_estimators.log", ["true or false"]),
        ("[n_estimators]\nmin = 1\nmax = 9\nstep = 2\nlog = true", "n_estimators.step", ["log = true"]),
        ("[n_estimators]\nmin = true\nmax = 9", "n_estimators.min", ["not a value", "true"]),
        ("[n_estimators]\nvalue = '100'", "n_estimators.value", ["remove the quotes"]),
        ("[n_estimators]\nvalue = [100]", "n_estimators.value", ["not a value", "a list of 1"]),
        ("[n_estimators]\nvalue = 1979-05-27", "n_estimators.value", ["not a value", "1979-05-27"]),
        ("[n_estimators]\nvalues = 100", "n_estimators.values", ["must be a list", "`value = 100`"]),
        ("[n_estimators]\nvalues = []", "n_estimators.values", ["is empty", "an integer from 1"]),
        ("[n_estimators]\nvalues = [9, 8, 9]", "n_estimators.values[2]", ["twice"]),
        ("[n_estimators]\nvalues = [9, 8.5]", "n_estimators.values[1]", ["not a value", "8.5"]),
        ("[n_estimators]\nvalues = [[9]]", "n_estimators.values[0]", ["not a value"]),
        ("[n_estimators]\nvalues = [9]\nvalue = 9", "n_estimators.value", ["cannot be combined with values"]),
        ("[n_estimators]\nvalue = 9\nmax = 9", "n_estimators.max", ["cannot be combined with value"]),
        ("[n_estimators]\nvalues = [9]\nlog = true", "n_estimators.log", ["cannot be combined with values"]),
        ("[n_estimators]", "n_estimators", ["defines no values", "min and max"]),
        ("[max_depth]\nmin = 'none'\nmax = 9", "max_depth.min", ["in a range", 'values = ["none", …]']),
        ("[criterion]\nmin = 1\nmax = 2", "criterion", ["cannot be a range", '"gini", "entropy"']),
        ("[criterion]\nvalue = 'ginni'", "criterion.value", ["did you mean gini?"]),
        ("[criterion]\nvalues = ['gini', 'entorpy']", "criterion.values[1]", ["did you mean entropy?"]),
        ("[criterion]\nvalue = true", "criterion.value", ["not a value", "true"]),
        ("[bootstrap]\nvalue = 1", "bootstrap.value", ["not a value", "true or false"]),
        ("[bootstrap]\nvalue = 'true'", "bootstrap.value", ["remove the quotes"]),
        ("[ccp_alpha]\nmin = 0.0\nmax = 1.0\nlog = true", "ccp_alpha.min", ["above 0 with log"]),
        ("[ccp_alpha]\nmin = 0.0\nmax = 1.0\nstep = 1e-9", "ccp_alpha.step", ["too small"]),
        ("[max_features]\nmin = 0.2\nmax = 1", "max_features.max", ["same type as min"]),
        ("[max_features]\nvalue = 1.5", "max_features.value", ["out of bounds", "a share above 0 up to 1.0"]),
        ("[max_features]\nvalue = 0.0", "max_features.value", ["out of bounds"]),
        ("[min_samples_leaf]\nvalue = 1.0", "min_samples_leaf.value", ["out of bounds", "up to 0.5"]),
        ("[min_samples_split]\nmin = 2\nmax = 9000000", "min_samples_split.max", ["too wide"]),
        ("[max_samples]\nvalue = 9\n[bootstrap]\nvalue = false", "max_samples", ["bootstrap is true"]),
        ("[n_estimators]\nmin = 1\nmax = 9\nn_trials = 3", "n_estimators.n_trials", ["above the first"]),
        ("[n_estimators]\nmaximum = 9\nmin = 3\nmax = 4", "n_estimators.maximum", ["did you mean max?"]),
        ("[n_estimators]\nmni = 9\nmin = 3\nmax = 4", "n_estimators.mni", ["did you mean min?"]),
        ("[[n_estimators]]\nmin = 3\nmax = 4", "n_estimators", ["which must be a table", "[n_estimators]"]),
        ("[n_estimatrs]\nvalue = 3", "n_estimatrs", ["did you mean n_estimators?", FOREST]),
        ("[learning_rate]\nvalue = 0.1", "learning_rate", ["it belongs to catboost-classifier"]),
        ("[hyperparameters.max_depth]\nvalue = 3", "hyperparameters", ["write [max_depth]"]),
        (f"[{FOREST}.max_depht]\nvalue = 3", f"{FOREST}.max_depht", ["did you mean max_depth?"]),
        ("[xgboost-classifier.max_depth]\nvalue = 3", "xgboost-classifier", ["not a model of this spec"]),
    ],
)  # fmt: skip
def test_wrong_tables_of_hyperparameters(
    only_issue: Callable[[str], ValidationIssue], body: str, key: str, words: list[str]
) -> None:
    issue = only_issue('[columns]\ntarget = "y"\n' + body)
    assert issue.key == key
    for word in words:
        assert word in f"{issue} found {issue.found} expected {issue.expected}"
    assert issue.line
    assert issue.line >= 4


@pytest.mark.parametrize(
    ("line", "form"),
    [
        ("n_estimators = 100", "`[n_estimators]` and below it `value = 100`"),
        ('criterion = "gini"', '`[criterion]` and below it `value = "gini"`'),
        ('criterion = ["gini", "entropy"]', '`[criterion]` and below it `values = ["gini", "entropy"]`'),
        ("max_depth = [1, 2, 3, 4]", "`[max_depth]` and below it `values = [1, 2, 3, …]`"),
    ],
)
def test_a_hyperparameter_that_is_not_a_table_gets_an_example(
    only_issue: Callable[[str], ValidationIssue], line: str, form: str
) -> None:
    issue = only_issue(line + "\n")
    assert (issue.line, issue.column) == (2, 1)
    assert issue.hint == f"write {form}"


def test_an_inline_table_is_a_table() -> None:
    text = f"n_estimators = {{ min = 5, max = 9 }}\nmax_depth.value = 3\n{HEAD.format(FOREST)}"
    spaces = load_spec(text.encode()).models[0].hyperparameters
    assert spaces["n_estimators"] == Range(min=5, max=9)
    assert spaces["max_depth"] == Choice(values=(3,))


@pytest.mark.parametrize(
    ("wanted", "size", "grid_size"),
    [
        (Range(min=50, max=500), 451, 5),
        (Range(min=1, max=3), 3, 3),
        (Range(min=50, max=500, step=50), 10, 10),
        (Range(min=50, max=499, step=50), 9, 9),
        (Range(min=0.1, max=0.5), None, 5),
        (Range(min=0.1, max=0.5, step=0.1), 5, 5),
        (Range(min=0.0, max=1e300, step=1e-300), None, 5),
        (Choice(values=(1, 1.0, True)), 3, 3),
    ],
)
def test_sizes(wanted: Hyperparameter, size: int | None, grid_size: int) -> None:
    assert wanted.size == size
    assert wanted.grid_size == grid_size
    assert space_size({"a": wanted, "b": Choice(values=(1, 2))}) == (None if size is None else 2 * size)
