"""The monitor DAG's form; what it does is shown where the platform runs."""

from __future__ import annotations

import pytest

from dmls_core.airflow.operations import monitor_dag
from dmls_core.airflow.settings import airflow_settings


def test_retraining_waits_for_the_comparison_and_settle_does_not_wait_for_it():
    dag = monitor_dag.monitor_dag()
    assert dag.task_dict["compare"].downstream_task_ids == {"retrain", "settle"}
    assert dag.task_dict["retrain"].downstream_task_ids == set()
    assert dag.task_dict["collect"].downstream_task_ids == {"compare"}
    assert not any(dag.task_dict[name].downstream_task_ids for name in ("repair", "reap", "clean"))
    assert dag.max_active_runs == 1
    assert not dag.catchup


@pytest.mark.parametrize("cron", ["30 6 * * *", ""])
def test_the_setting_says_when_it_runs(monkeypatch, cron):
    monkeypatch.setattr(
        monitor_dag, "airflow_settings", lambda: airflow_settings().model_copy(update={"monitor_cron": cron})
    )
    assert getattr(monitor_dag.monitor_dag().timetable, "expression", "") == cron
