"""Which hyperparameters one grown forest answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmls_core.search.forest.space import axis, partition_space
from dmls_core.search.task import Space
from dmls_core.spec import Choice, Range
from tests.unit.search.forest.conftest import make_task

TREES = Range(min=50, max=500)
DEPTHS = Range(min=4, max=20)


def test_the_number_of_trees_and_what_stops_a_tree_need_no_forest_of_their_own():
    space = Space.of(
        {
            "n_estimators": TREES,
            "max_depth": Choice(values=(3, "none", 5)),
            "min_samples_split": Choice(values=(9, 0.5, 4)),
            "criterion": Choice(values=("gini", "entropy")),
            "max_features": Choice(values=(0.5,)),
        }
    )
    parts = partition_space(make_task(), space)

    assert set(parts.structural.searched) == {"criterion"}
    assert parts.sizes == (50, 100, 150, 200, 250, 300, 350, 400, 450, 500)
    assert len(parts.limits) == 9
    assert parts.least_restrictive == {"max_depth": "none", "min_samples_split": 4}
    assert parts.growth_params({"criterion": "gini"}, 7) == {
        "criterion": "gini",
        "max_features": 0.5,
        "max_depth": "none",
        "min_samples_split": 4,
        "n_estimators": 7,
    }


@pytest.mark.parametrize(
    "limit",
    [
        {"max_leaf_nodes": Choice(values=(30,))},
        {"max_leaf_nodes": Choice(values=("none", 30))},
        {"ccp_alpha": Choice(values=(0.01,))},
        {"ccp_alpha": Range(min=0.0, max=0.1)},
    ],
)
def test_trees_that_grow_best_first_or_are_pruned_afterwards_are_not_cut(limit):
    parts = partition_space(make_task(), Space.of({"n_estimators": TREES, "max_depth": DEPTHS, **limit}))

    assert "max_depth" in parts.structural.searched
    assert parts.limits == ({},)


def test_what_is_not_searched_stays_as_it_is():
    parts = partition_space(make_task(), Space.of({"criterion": Choice(values=("gini", "entropy"))}))

    assert parts.sizes == (100,)
    assert not parts.sizes_searched
    assert parts.limits == ({},)


@given(low=st.integers(1, 50), width=st.integers(1, 500), step=st.integers(1, 40), log=st.booleans())
def test_an_axis_has_both_ends_and_values_of_the_range(low, width, step, log):
    wanted = Range(min=low, max=low + width, log=True) if log else Range(min=low, max=low + width, step=step)
    found = axis(wanted, 9)

    assert found[0] == low
    assert list(found) == sorted(set(found))
    assert len(found) <= 9
    assert all(type(value) is int and low <= value <= low + width for value in found)
    if not log:
        assert all((value - low) % step == 0 for value in found)
        assert found[-1] == low + width // step * step


def test_floats_are_spread_evenly_or_over_their_logarithm():
    assert axis(Range(min=0.0, max=1.0), 5) == pytest.approx((0, 0.25, 0.5, 0.75, 1))
    assert axis(Range(min=0.01, max=1.0, log=True), 3) == pytest.approx((0.01, 0.1, 1))
