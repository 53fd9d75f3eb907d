"""Airflow's metadata database on SQLite in memory, and rows of its tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from airflow.models import import_all_models
from airflow.models.base import Base
from airflow.models.dag import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from sqlalchemy import Engine, create_engine, insert
from sqlalchemy.orm import Session
from sqlalchemy.pool import StaticPool

NOW = datetime(2026, 1, 2, 3, tzinfo=UTC)
DAG_DEFAULTS = {
    "bundle_name": "dmls",
    "is_paused": False,
    "is_stale": False,
    "has_task_concurrency_limits": False,
    "timetable_type": "",
    "max_active_tasks": 16,
    "max_consecutive_failed_dag_runs": 0,
}


@contextmanager
def memory_database() -> Iterator[Engine]:
    """Yield an engine with Airflow's tables, and the bundle of ``add_dag``; any thread may use it."""
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    import_all_models()
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(DagBundleModel(name="dmls"))
        session.commit()
    try:
        yield engine
    finally:
        engine.dispose()


def add_dag(session: Session, dag_id: str, **values: Any) -> None:
    session.execute(insert(DagModel).values({"dag_id": dag_id, **DAG_DEFAULTS, **values}))


def add_run(session: Session, dag_id: str, run_id: str, state: str, hours: int = 0) -> None:
    times = {"run_after": NOW + timedelta(hours=hours), "logical_date": NOW + timedelta(hours=hours)}
    run = {"dag_id": dag_id, "run_id": run_id, "state": state, "run_type": "manual", **times}
    session.execute(insert(DagRun).values(run))


def add_task(
    session: Session, dag_id: str, run_id: str, task_id: str, state: str | None, **values: Any
) -> None:
    task = {"dag_id": dag_id, "run_id": run_id, "task_id": task_id, "state": state, "map_index": -1}
    defaults = {
        "id": uuid4(),
        "pool": "dmls_cpu",
        "pool_slots": 1,
        "priority_weight": 1,
        "try_number": 1,
        "max_tries": 0,
    }
    session.execute(insert(TaskInstance).values({**task, **defaults, **values}))
