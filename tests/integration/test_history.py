"""``dmls clean`` on Airflow's databases."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.models import import_all_models
from airflow.models.base import Base
from airflow.models.dag import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.models.dagrun import DagRun
from airflow.models.log import Log
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from sqlalchemy import Engine, create_engine, insert, select
from sqlalchemy.orm import Session

from dmls_core.airflow.settings import BUNDLE_CLASSPATH
from dmls_core.devstack.postgres import database_url
from tests.services.postgres_server import PostgresServer

NOW = datetime.now(UTC)
DAG = {
    "bundle_name": "dmls",
    "is_paused": False,
    "is_stale": False,
    "has_task_concurrency_limits": False,
    "timetable_type": "",
    "max_active_tasks": 16,
    "max_consecutive_failed_dag_runs": 0,
}
TASK = {"map_index": -1, "pool": "dmls_cpu", "pool_slots": 1, "priority_weight": 1, "max_tries": 0}

RUNS = [
    # (DAG, run, type, state, age in days, whether it stays)
    ("dmls.lab.iris", "version-1", "scheduled", "success", 200, True),  # or Airflow would start it again
    ("dmls.lab.iris", "manual-1", "manual", "success", 150, False),
    ("dmls.lab.iris", "manual-2", "manual", "failed", 140, False),
    ("dmls.lab.iris", "retrain", "operator_triggered", "success", 120, True),  # the newest, for the page
    ("dmls.lab.daily", "version-1", "scheduled", "success", 300, False),
    ("dmls.lab.daily", "day-1", "scheduled", "success", 100, False),
    ("dmls.lab.daily", "day-2", "scheduled", "success", 80, True),
    ("dmls.lab.stuck", "version-1", "scheduled", "running", 200, True),
    ("dmls.lab.stuck", "version-2", "scheduled", "success", 10, True),
    ("theirs", "old", "scheduled", "success", 300, True),
    ("theirs", "new", "scheduled", "success", 1, True),
]
STAYS = {(dag, run) for dag, run, *_, stays in RUNS if stays}


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/airflow.db"
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        server.empty("airflow")
        url = database_url(server.context, "airflow", "psycopg2")
    engine = create_engine(url)
    import_all_models()
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(DagBundleModel(name="dmls"))
        session.flush()
        for dag_id in dict.fromkeys(run[0] for run in RUNS):
            session.execute(insert(DagModel).values({"dag_id": dag_id, **DAG}))
        for dag_id, run_id, kind, state, age, _ in RUNS:
            add_run(session, dag_id, run_id, kind, state, NOW - timedelta(days=age))
        session.commit()
    yield engine
    engine.dispose()


def add_run(session: Session, dag_id: str, run_id: str, kind: str, state: str, at: datetime) -> None:
    end = at + timedelta(minutes=5) if state != "running" else None
    times = {"run_after": at, "logical_date": at, "start_date": at, "end_date": end}
    run = {"dag_id": dag_id, "run_id": run_id, "state": state, "run_type": kind, **times}
    made = session.execute(insert(DagRun).values(run)).inserted_primary_key
    assert made is not None
    for task_id in ("search", "evaluate"):
        key = {"dag_id": dag_id, "run_id": run_id, "task_id": task_id}
        session.execute(insert(TaskInstance).values({**key, **TASK, "state": state, "try_number": 1}))
        value = {"dag_run_id": made[0], "key": "return_value", "map_index": -1, "value": {"score": 1}}
        session.execute(insert(XComModel).values({**key, **value, "timestamp": at}))
    session.execute(insert(Log).values({"dag_id": dag_id, "run_id": run_id, "event": "trigger", "dttm": at}))


def clean(engine: Engine, folder: Path, *options: str) -> dict[str, Any]:
    """Run the command as the scheduler's machine does."""
    bundle = {"name": "dmls", "classpath": BUNDLE_CLASSPATH, "kwargs": {"root": "/root", "runner": "process"}}
    environment = os.environ | {
        "AIRFLOW_HOME": str(folder / "home"),
        "DMLS_HOME": str(folder / "none"),
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps([bundle]),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": engine.url.render_as_string(hide_password=False),
    }
    command = [sys.executable, "-m", "dmls_core.cli", "clean", "--json", *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def remaining(engine: Engine, table: Any) -> set[tuple[str, str]]:
    with Session(engine) as session:
        return {(dag, run) for dag, run in session.execute(select(table.dag_id, table.run_id))}


@pytest.mark.parametrize(
    "database",
    [
        "postgresql",
        pytest.param("sqlite", marks=pytest.mark.nightly("`make test` cleans a PostgreSQL database")),
    ],
    indirect=True,
)
def test_old_runs_are_counted_and_then_deleted_with_their_tasks(database: Engine, tmp_path: Path):
    every = {(dag, run) for dag, run, *_ in RUNS}
    old = {"schema": 1, "days": 90, "runs": 4, "dags": 2, "events": 7}

    assert clean(database, tmp_path) == {**old, "deleted": False}
    assert remaining(database, DagRun) == every

    assert clean(database, tmp_path, "--yes") == {**old, "deleted": True}
    for table in (DagRun, TaskInstance, XComModel):
        assert remaining(database, table) == STAYS
    assert remaining(database, Log) == {
        (dag, run) for dag, run, _, _, age, _ in RUNS if age < 90 or dag == "theirs"
    }
