"""The learning rate that a spec leaves to DMLS."""

from __future__ import annotations

import pytest

from dmls_core.models import load_spec
from dmls_core.search.boosting.shrinkage import MANY, Shrinkage, resolve
from dmls_core.search.task import Space
from dmls_core.spec import Choice, Range

MODELS = [f"{family}-{task}" for family in ("lightgbm", "xgboost") for task in ("classifier", "regressor")]


def space_of(model: str, tables: str = "") -> Space:
    spec = load_spec(f'model = "{model}"\n[columns]\ntarget = "y"\n{tables}'.encode())
    return Space.of(spec.models[0].hyperparameters)


@pytest.mark.parametrize("model", MODELS)
def test_the_rule_sets_the_rate_of_a_spec_without_hyperparameters(model: str) -> None:
    space = space_of(model)
    for rows, classes in ((100, 0), (MANY - 1, 2), (MANY, 3)):
        family = model.rsplit("-", 1)[0]
        found, speedup = resolve(space, rows, classes, family)
        rule = Shrinkage.of(rows, classes, family)
        assert found.fixed["learning_rate"] == rule.rate < 1
        assert speedup == rule.speedup > 1
        assert found.searched == space.searched


def test_the_rule_is_the_documented_one() -> None:
    for classes in (0, 2):
        assert [Shrinkage.of(rows, classes, "lightgbm") for rows in (100, 9_999, 10_000)] == [
            Shrinkage(0.05, 4, 0.0125),
            Shrinkage(0.05, 4, 0.0125),
            Shrinkage(0.1, 4, 0.05),
        ]
    for family, last in (("lightgbm", 0.05), ("xgboost", 0.05), ("catboost", 0.2)):
        assert [Shrinkage.of(rows, 3, family) for rows in (9_999, 10_000)] == [
            Shrinkage(0.05, 4, last),
            Shrinkage(0.1, 2, last),
        ]


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("min = 0.01\nmax = 0.3\nlog = true", Range(min=0.01, max=0.3, log=True)),
        ("values = [0.1, 0.2]", Choice(values=(0.1, 0.2))),
        ('values = ["auto", 0.2]', Choice(values=(Shrinkage.of(100, 2, "xgboost").rate, 0.2))),
    ],
)
def test_rates_of_the_spec_are_searched_exactly(table: str, expected: Range | Choice) -> None:
    found, speedup = resolve(space_of("xgboost-classifier", f"[learning_rate]\n{table}"), 100, 2, "xgboost")
    assert found.searched == {"learning_rate": expected}
    assert speedup == 1


def test_a_single_rate_stays_what_it_is() -> None:
    assert (
        resolve(space_of("xgboost-classifier", "[max_depth]\nvalue = 3"), 100, 2, "xgboost")[0].fixed[
            "learning_rate"
        ]
        == 0.3
    )
    same = f'[learning_rate]\nvalues = ["auto", {Shrinkage.of(100, 2, "xgboost").rate}]'
    found, speedup = resolve(space_of("lightgbm-regressor", same), 100, 0, "lightgbm")
    assert found.fixed["learning_rate"] == Shrinkage.of(100, 2, "xgboost").rate
    assert (found.searched, speedup) == ({}, 1)
