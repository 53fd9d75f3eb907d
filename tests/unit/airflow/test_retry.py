"""An outage of ten minutes ends no run, if no later event repeats it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from airflow.models.taskinstance import TaskInstance
from tenacity import wait_random_exponential

from dmls_core.airflow.jobs.job_dag import build_dag
from dmls_core.airflow.operations.score_dag import score_dag
from dmls_core.devstack import airflow
from dmls_core.devstack.context import Context, load_identity
from dmls_core.models import load_spec
from dmls_core.store import JobRecord
from tests.unit.conftest import SPEC

OUTAGE = 600
COMPOSE = Path(__file__).parents[3] / "docker-compose.yaml"


def waits(task: Any) -> float:
    """Return the seconds between the first and the last try, if each fails at once."""
    now = datetime.now(UTC)
    tries: list[Any] = [
        SimpleNamespace(
            task=task,
            try_number=number,
            retry_delay_override=None,
            end_date=now,
            dag_id="dmls.lab.iris",
            task_id=task.task_id,
            logical_date=now,
        )
        for number in range(1, task.retries + 1)
    ]
    next_try: Any = TaskInstance.next_retry_datetime
    return sum(float((next_try(one) - now).total_seconds()) for one in tries)


def test_tries_outlive_an_outage(accept: Callable[..., JobRecord]) -> None:
    spec = load_spec(SPEC).as_json()
    dags = [
        build_dag("dmls.lab.iris", {"record": accept("lab", "iris").as_json(), "spec": spec}),
        score_dag(),
    ]
    tasks = [task for dag in dags for task in dag.tasks]
    assert len(tasks) == 10
    assert min(map(waits, tasks)) > OUTAGE
    assert max(map(waits, tasks)) < 3 * OUTAGE


@pytest.mark.parametrize("platform", ["embedded", "compose"])
def test_a_task_that_cannot_reach_airflow_waits_and_loses_no_try(platform: str, tmp_path: Path) -> None:
    if platform == "compose":
        environment = yaml.safe_load(COMPOSE.read_text())["services"]["airflow-scheduler"]["environment"]
    else:
        identity = load_identity(tmp_path / "identity.json")
        identity.ports = defaultdict(lambda: 20000)
        context = Context(tmp_path, identity)
        environment = airflow.airflow_environment(context, "process")
    longest = float(environment["AIRFLOW__WORKERS__EXECUTION_API_RETRY_WAIT_MAX"])
    wait: Any = wait_random_exponential(min=1, max=longest)
    requests = range(1, int(environment["AIRFLOW__WORKERS__EXECUTION_API_RETRIES"]))
    assert sum(wait(SimpleNamespace(attempt_number=number)) for number in requests) > 0.9 * OUTAGE
    assert longest <= 10, "it goes on soon after the outage"
