"""Searching, filtering, sorting, and paging the table of jobs."""

from __future__ import annotations

import pytest

from dmls_core.web.services.job_table import SORT_KEYS, JobQuery, JobRow, search

ROWS = [
    JobRow(
        "sales", "churn", state="deployed", owner="Ada", models=("xgboost-classifier",), scores=(0.8, 0.9)
    ),
    JobRow("sales", "price", state="running", owner="Bo", models=("random-forest-regressor",), queue=2),
    JobRow("lab", "iris", state="failed", owner="Ada", message="out of MEMORY", scores=(0.7,)),
    JobRow("lab", "old", state="retired"),
]


def names(**query: object) -> list[str]:
    return [row.name for row in search(ROWS, JobQuery(**{"sort": "job", "descending": False, **query})).rows]


def test_retired_jobs_are_shown_only_if_their_state_is_selected():
    assert names() == ["iris", "churn", "price"]
    assert names(states=["retired"]) == ["old"]


def test_every_word_must_occur_regardless_of_case():
    assert names(text="ADA memory") == ["iris"]
    assert names(text="ada sales") == ["churn"]
    assert names(text="sales/price") == ["price"]
    assert names(text="nowhere") == []


def test_filters_are_combined():
    assert names(team="sales") == ["churn", "price"]
    assert names(team="sales", model="xgboost-classifier") == ["churn"]
    assert names(team="lab", states=["running", "deployed"]) == []


def test_missing_values_come_last_in_either_direction():
    assert names(sort="score") == ["iris", "churn", "price"]
    assert names(sort="score", descending=True) == ["churn", "iris", "price"]


def test_a_page_contains_the_totals():
    page = search(ROWS, JobQuery(sort="job", descending=False, offset=1, limit=1))
    assert [row.name for row in page.rows] == ["churn"]
    assert page.total == 3
    assert page.states == {"deployed": 1, "failed": 1, "retired": 1, "running": 1}
    assert page.teams == ("lab", "sales")
    assert page.models == ("random-forest-regressor", "xgboost-classifier")


@pytest.mark.parametrize("column", SORT_KEYS)
def test_every_column_sorts_every_row(column: str):
    assert sorted(names(sort=column)) == ["churn", "iris", "price"]
