"""The plan of a search, and the specs that this platform cannot run."""

from __future__ import annotations

import pytest
from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowNotFoundException

from dmls_core.errors import SpecError


def test_the_plan_has_an_entry_for_each_worker_but_none_without_a_trial(job, plan, connection):
    assert plan(job(2)) == [
        {"worker": 0, "engine": "cpu", "helpers": 1},
        {"worker": 1, "engine": "cpu", "auto": False},
    ]
    assert len(plan(job(50))) == 3
    assert [entry.get("auto") for entry in plan(job("auto"))] == [None, True, True]


def test_several_workers_without_a_study_database_are_a_spec_error(job, plan, monkeypatch):
    def missing(_: str) -> Connection:
        raise AirflowNotFoundException("no such connection")

    monkeypatch.setattr(Connection, "get", missing)

    assert plan(job(1)) == plan(job("auto")) == [{"worker": 0, "engine": "cpu", "helpers": 0}]
    with pytest.raises(SpecError, match="no database for a search with several workers") as caught:
        plan(job(2))
    (issue,) = caught.value.issues
    assert (issue.key, issue.found, issue.expected) == ("search.workers", "2", "1")
    assert "dmls_study" in issue.hint
