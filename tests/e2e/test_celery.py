"""Airflow with two Celery workers, Redis and PostgreSQL: the whole journey, and a worker that is killed."""

from __future__ import annotations

import pytest

from tests.e2e import data
from tests.services.celery_platform import CeleryPlatform
from tests.services.platform_home import eventually

pytestmark = pytest.mark.nightly("a platform with another executor; the parts of DMLS are those of the demo")

SPEC = data.SMALL_IRIS + '\n[deploy]\nmode = "auto"\n'


def test_a_job_is_trained_and_served_by_workers_on_other_hosts(celery: CeleryPlatform):
    client = celery.client
    client.drop("lab", "iris", SPEC, data.iris())
    client.wait_status("lab", "iris", "deployed")
    assert sum(client.infer("lab.iris", [[5.1, 3.5, 1.4, 0.2]])) == pytest.approx(1)
    run = client.wait_run("lab", "iris", "success")
    tasks = [task for task in client.tasks("lab", "iris", run["dag_run_id"]) if task["hostname"]]
    assert {task["hostname"] for task in tasks} == set(celery.hosts)
    for task in tasks:
        path = f"/dags/dmls.lab.iris/dagRuns/{run['dag_run_id']}/taskInstances/{task['task_id']}"
        lines = str(client.airflow("GET", f"{path}/logs/{task['try_number']}?map_index={task['map_index']}"))
        # While a task is deferred, the triggerer writes its log.
        source = "searching" if task["task_id"] == "search" else f"http://{task['hostname']}:8793"
        assert source in lines
        assert "Could not read" not in lines


def test_a_run_outlives_a_worker_that_is_killed(celery: CeleryPlatform):
    client = celery.client
    client.drop("lab", "wine", *data.wine())

    def working() -> str:
        runs = client.runs("lab", "wine") if client.dag_exists("dmls.lab.wine") else []
        tasks = [task for run in runs for task in client.tasks("lab", "wine", run["dag_run_id"])]
        return next((task["hostname"] for task in tasks if task["state"] == "running"), "")

    eventually(working)
    celery.hosts[working() or next(iter(celery.hosts))].kill_worker()
    client.wait_status("lab", "wine", "deployed", timeout=1200)
    lost = [host.address for host in celery.hosts.values() if host.worker.poll() is not None]
    assert len(lost) == 1
