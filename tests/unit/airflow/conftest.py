"""An accepted job, its plan, and the connection of the study database."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.models.dagbundle import DagBundleModel
from sqlalchemy import update
from sqlalchemy.orm import Session

from dmls_core.airflow.jobs.tasks.plan import PlanOperator
from dmls_core.airflow.runs.job import Job
from dmls_core.models import load_spec
from dmls_core.store import open_store
from dmls_core.store.local import LocalStore
from tests.support.airflow_database import memory_database

SPEC = """model = {models}
n_trials = 3
[columns]
target = "y"
[search]
workers = {workers}
"""


@pytest.fixture
def job(accept) -> Callable[..., Job]:
    """Accept a job as admission would."""

    def _job(workers: int | str = 2, *models: str, nodes: int = 1) -> Job:
        names = [f'"{model}"' for model in models or ("random-forest-classifier",)]
        content = SPEC.format(models=f"[{', '.join(names)}]", workers=json.dumps(workers)).encode()
        content += f"\n[resources]\nnodes = {nodes}\n".encode()
        return Job(record=accept("lab", "iris", spec=content), spec=load_spec(content))

    return _job


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_DMLS_STUDY", "postgres://me:secret@db.example.com:5433/studies")


@pytest.fixture
def plan(tmp_path: Path) -> Callable[[Job], list[dict[str, Any]]]:
    """Plan a run with the store at the test's folder."""

    def _plan(of: Job) -> list[dict[str, Any]]:
        settings = SimpleNamespace(gpus=0, mlflow_uri="")
        reporter = SimpleNamespace(running=lambda _: None)
        run = SimpleNamespace(job=of, settings=settings, store=open_store(str(tmp_path)), reporter=reporter)
        return PlanOperator(task_id="plan").run_job(run)

    return _plan


@pytest.fixture
def session() -> Iterator[Session]:
    """Airflow's metadata database, on SQLite in memory."""
    with memory_database() as engine, Session(engine) as session:
        session.execute(update(DagBundleModel).values(version="v7"))
        session.add(DagBundleModel(name="others"))
        session.flush()
        yield session


@pytest.fixture
def outages(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Let the first two listings of the store fail; return the calls."""
    real, calls = LocalStore.list_async, []

    async def flaky(*arguments):
        calls.append(arguments)
        if len(calls) < 3:
            raise OSError("away")
        return await real(*arguments)

    monkeypatch.setattr(LocalStore, "list_async", flaky)
    return calls
