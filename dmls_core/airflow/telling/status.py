"""Answer the user beside the drop while the DAG runs, and when it fails."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from airflow.sdk.configuration import conf

from dmls_core.airflow.connections import open_root
from dmls_core.airflow.jobs.job import Job, job_of, unchanged_job_of
from dmls_core.airflow.settings import airflow_settings
from dmls_core.airflow.task_id import TaskId
from dmls_core.airflow.telling.notify import notify
from dmls_core.errors import DmlsError, StoreError, UserError
from dmls_core.intake import State, update_run_status
from dmls_core.store import Store, layout

log = logging.getLogger(__name__)


class StatusReporter:
    """Writes ``_status`` for one run of a job."""

    def __init__(self, job: Job, store: Store, run_id: str) -> None:
        self._job = job
        self._store = store
        self.links: dict[str, str] = {"airflow": dag_run_url(job, run_id)}

    def running(self, message: str) -> None:
        """Say what the run is doing."""
        self.report("running", message)

    def stopped(self) -> None:
        """Say that the training was stopped: by a user in Airflow, or because a service went down."""
        self.report(
            "failed",
            "The training was stopped. Unless Airflow tries it again by itself, clear the task search: "
            "it goes on where it was.",
        )

    def report(self, state: State, message: str, errors: list[dict[str, Any]] | None = None) -> None:
        """Write the status; an older run never overwrites a newer submission's answer.

        A backfill is answered where it was asked for, in Airflow: how the job itself stands stays in sight.
        """
        if self._job.backfill:
            log.info("%s: %s", state, message)
            return
        update_run_status(
            self._store,
            self._job.team,
            self._job.name,
            self._job.record.run_key,
            run=self._job.inputs.run_key if self._job.inputs else "",
            state=state,
            message=message,
            errors=errors or [],
            links=self.links,
        )


def dag_run_url(job: Job, run_id: str) -> str:
    """Return the address of the run's page in Airflow."""
    return run_page(layout.dag_id(job.team, job.name), run_id)


def run_page(dag_id: str, run_id: str) -> str:
    """Return the address of a run's page in Airflow."""
    base = conf.get("api", "base_url", fallback="").rstrip("/")
    return f"{base}/dags/{quote(dag_id)}/runs/{quote(run_id, safe='')}"


def report_failure(context: Mapping[str, Any]) -> None:
    """Airflow's ``on_failure_callback`` of every task: say what failed and why, in the user's words."""
    task = context["task_instance"]
    issues: list[dict[str, Any]] = []
    exception = context.get("exception")
    message = str(exception) if isinstance(exception, Exception) else "the task was killed or timed out"
    try:
        job = job_of(context)
    except UserError as error:
        job, issues = unchanged_job_of(context), [issue.as_json() for issue in error.issues]
    store = open_root(airflow_settings())
    if task.task_id == TaskId.SEARCH:
        try:
            answer = json.loads(store.get(job.run_file("error.json")))
            message, issues = answer["message"], answer["issues"]
        except StoreError as error:
            log.info("there is no error.json of the trainer: %s", error)
    reporter = StatusReporter(job, store, context["run_id"])
    told = f"The task {task.task_id} failed: {message}"
    try:
        reporter.report("failed", told, issues)
    except DmlsError as error:
        log.warning("could not write the status: %s", error)
    notify(job.owner, "failed", f"{job.team}/{job.name}", told, reporter.links)
