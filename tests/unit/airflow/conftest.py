"""An accepted job, its plan, and the connection of the study database."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.models import import_all_models
from airflow.models.base import Base
from airflow.models.dagbundle import DagBundleModel
from sqlalchemy import create_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import StaticPool

from dmls_core.airflow.job import Job
from dmls_core.airflow.job_tasks import PlanOperator
from dmls_core.models import load_spec
from dmls_core.store import open_store

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
    engine = create_engine("sqlite://", poolclass=StaticPool)
    import_all_models()
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        bundle = DagBundleModel(name="dmls")
        bundle.version = "v7"
        session.add_all([bundle, DagBundleModel(name="others")])
        session.flush()
        yield session
    engine.dispose()
