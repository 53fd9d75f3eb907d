"""The watchers that Airflow loses, with Airflow's code and tables."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.models.asset import AssetWatcherModel
from airflow.models.dag import DagModel
from airflow.models.trigger import Trigger
from airflow.serialization.definitions.dag import SerializedDAG
from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from dmls_core.airflow import database
from dmls_core.airflow.bundle import bundle as module
from dmls_core.airflow.intake import submission_trigger
from dmls_core.airflow.intake.intake_dag import intake_dag
from dmls_core.airflow.operations.service_health import probe_all, service_probes
from dmls_core.store import open_store


def test_a_lost_watcher_is_restored_and_told_of_meanwhile(
    bundle: Callable[..., Any], session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow removes a new watcher with the one that it replaces, as after an upgrade."""
    monkeypatch.setattr(database, "create_session", lambda **_: nullcontext(session))
    monkeypatch.setattr(database, "airflow_health", lambda: {"scheduler": "healthy"})
    clock = SimpleNamespace(now=time.monotonic())
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    made = bundle()
    made.initialize()
    file = made.path / "dmls_intake.py"

    def parse(poll_seconds: float) -> list[float]:
        """Do as the DAG processor does; return the poll_seconds of each stored watcher."""
        settings = made.settings.model_copy(update={"poll_seconds": poll_seconds})
        monkeypatch.setattr(submission_trigger, "airflow_settings", lambda: settings)
        dag = intake_dag()
        dag.relative_fileloc = file.name
        SerializedDAG.bulk_write_to_db("dmls", None, [dag], session=session)
        session.flush()
        session.expire_all()
        triggers = session.scalars(select(Trigger).join(AssetWatcherModel))
        return [trigger.kwargs["poll_seconds"] for trigger in triggers]

    def is_parsed_again() -> bool:
        clock.now += module.WATCHER_SECONDS + 1
        before = file.stat()
        made._restore_watchers()
        return bool(file.stat().st_mtime_ns > before.st_mtime_ns)

    def state() -> str:
        probe = service_probes(made.settings, open_store(made.settings.root))["Airflow"]
        return probe_all({"Airflow with watchers": probe}, 30)[0].message

    assert parse(3) == [3]
    assert not is_parsed_again()
    assert state() == "scheduler are healthy"

    for trigger in session.scalars(select(Trigger)):
        trigger.kwargs = {name: value for name, value in trigger.kwargs.items() if name == "root"}
    watchers = parse(2)  # over what an earlier release stored
    if is_parsed_again():
        assert watchers == []
        assert state() == "no event starts dmls.intake: the watcher is gone"
        watchers = parse(2)
    assert watchers == [2]
    assert state() == "scheduler are healthy"

    session.execute(delete(AssetWatcherModel))
    assert is_parsed_again()
    session.execute(update(DagModel).values(is_paused=True))
    assert not is_parsed_again(), "a paused DAG has none"
