"""What the repair does for which events; the repairs themselves are tested where they are made."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import AirflowFailException

from dmls_core.airflow.operations import repair_dag
from dmls_core.airflow.settings import AirflowSettings
from dmls_core.monitoring.reconcile import ReconcileResult


@pytest.fixture
def calls(monkeypatch, tmp_path):
    """Which repairs were made, and with what result."""
    made = SimpleNamespace(names=[], processes=ReconcileResult())
    settings = AirflowSettings(
        root=str(tmp_path / "root"),
        mlflow_uri="http://mlflow",
        triton_http="triton:8000",
        triton_grpc="triton:8001",
        triton_repository=str(tmp_path / "models"),
    )
    monkeypatch.setattr(repair_dag, "airflow_settings", lambda: settings)

    @contextmanager
    def servers(*_, **__):
        yield ()

    class Watch:
        def __init__(self, *_):
            pass

        def look(self, _):
            made.names.append("processes")
            return made.processes

    def reconcile(*_, **__):
        made.names.append("models")
        return ReconcileResult(["a model"])

    monkeypatch.setattr("dmls_core.serving.triton.placement.triton_servers", servers)
    monkeypatch.setattr("dmls_core.monitoring.processes.ProcessWatch", Watch)
    monkeypatch.setattr("dmls_core.monitoring.reconcile.reconcile_all", reconcile)
    return made


def repair(**payload):
    events = [SimpleNamespace(extra={"payload": payload})] if payload else []
    context = {"triggering_asset_events": {"asset": events}}
    return repair_dag.RepairOperator(task_id="repair").execute(context)


def test_a_process_that_ended_is_restarted_without_looking_at_every_model(calls):
    calls.processes = ReconcileResult(["a process"])
    assert repair(processes=["triton:8000"]) == ["a process"]
    assert calls.names == ["processes"]


@pytest.mark.parametrize("payload", [{}, {"models": ["lab.iris"]}], ids=["hourly", "interrupted"])
def test_models_are_reconciled_once_the_processes_run(calls, payload):
    calls.processes = ReconcileResult(["a process"])
    assert repair(**payload) == ["a process", "a model"]
    assert calls.names == ["processes", "models"]


def test_a_process_that_does_not_start_fails_the_task_after_the_other_repairs(calls):
    calls.processes = ReconcileResult(failures=["it does not start"])
    with pytest.raises(AirflowFailException, match="not repaired: it does not start; repaired: a model"):
        repair(models=["lab.iris"])
