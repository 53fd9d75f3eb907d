"""DMLS's metrics as Airflow's API server serves them, by a process with an Airflow database of its own.

``python -m tests.support.metrics_server PORT``, with Airflow's configuration in the environment.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta

import uvicorn
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from starlette.applications import Starlette
from starlette.routing import Mount

from dmls_core.airflow.metrics_endpoint import create_app
from dmls_core.web import METRICS_PREFIX

STATES = ("success", "success", "failed", "running")
SECONDS = 30


def add_runs() -> None:
    """Note runs of a job as Airflow does: each that ended took ``SECONDS``."""
    now = datetime.now(UTC)
    with create_session() as session:
        for number, state in enumerate(STATES):
            values = {
                "dag_id": "dmls.lab.scraped",
                "run_id": f"run {number}",
                "run_type": "manual",
                "run_after": now,
                "clear_number": 0,
                "span_status": "not_started",
                "state": state,
                "start_date": now - timedelta(seconds=SECONDS),
                "end_date": None if state == "running" else now,
            }
            session.execute(DagRun.__table__.insert().values(values))


if __name__ == "__main__":
    add_runs()
    routes = [Mount(METRICS_PREFIX, create_app())]
    uvicorn.run(Starlette(routes=routes), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
