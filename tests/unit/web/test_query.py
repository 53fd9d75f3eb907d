"""Search, filter, sort and cut the table of jobs."""

from __future__ import annotations

import pytest

from dmls_core.web.index.query import KEYS, Query, search
from dmls_core.web.index.row import JobRow

ROWS = [
    JobRow(
        "sales", "churn", state="deployed", owner="Ada", models=("xgboost-classifier",), scores=(0.8, 0.9)
    ),
    JobRow("sales", "price", state="running", owner="Bo", models=("random-forest-regressor",), queue=2),
    JobRow("lab", "iris", state="failed", owner="Ada", message="out of MEMORY", scores=(0.7,)),
    JobRow("lab", "old", state="retired"),
]


def names(**asked: object) -> list[str]:
    return [row.name for row in search(ROWS, Query(**{"sort": "job", "descending": False, **asked})).rows]


def test_retired_jobs_are_shown_only_when_they_are_asked_for():
    assert names() == ["iris", "churn", "price"]
    assert names(states=["retired"]) == ["old"]


def test_every_word_must_occur_somewhere_whatever_its_case():
    assert names(text="ADA memory") == ["iris"]
    assert names(text="ada sales") == ["churn"]
    assert names(text="sales/price") == ["price"]
    assert names(text="nowhere") == []


def test_filters_add_up():
    assert names(team="sales") == ["churn", "price"]
    assert names(team="sales", model="xgboost-classifier") == ["churn"]
    assert names(team="lab", states=["running", "deployed"]) == []


def test_what_a_column_lacks_comes_last_in_either_direction():
    assert names(sort="score") == ["iris", "churn", "price"]
    assert names(sort="score", descending=True) == ["churn", "iris", "price"]


def test_a_page_tells_how_many_there_are_in_all():
    page = search(ROWS, Query(sort="job", descending=False, offset=1, limit=1))
    assert [row.name for row in page.rows] == ["churn"]
    assert page.total == 3
    assert page.states == {"deployed": 1, "failed": 1, "retired": 1, "running": 1}
    assert page.teams == ("lab", "sales")
    assert page.models == ("random-forest-regressor", "xgboost-classifier")


@pytest.mark.parametrize("column", KEYS)
def test_every_column_sorts_every_row(column: str):
    assert sorted(names(sort=column)) == ["churn", "iris", "price"]
