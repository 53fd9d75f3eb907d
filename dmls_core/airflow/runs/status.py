"""Write ``_status`` next to a submission while its DAG runs, and when it fails."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping
from typing import Any, Self
from urllib.parse import quote

from dmls_core.airflow.notifiers import notify
from dmls_core.airflow.runs.job import Job, admitted_job_of, job_of
from dmls_core.airflow.settings import airflow_settings, airflow_url, open_root
from dmls_core.airflow.task_id import TaskId
from dmls_core.errors import DmlsError, StoreError, UserError
from dmls_core.intake import State, update_run_status
from dmls_core.store import Store, layout
from dmls_core.visible_text import visible_lines

log = logging.getLogger(__name__)

INTERRUPTED = "The training was stopped. To go on, clear the task `search`: it resumes at its last trial."
"""Message of a run whose training was ended from outside, until it is known by whom."""


class StatusReporter:
    """Write ``_status`` for one run of a job."""

    def __init__(self, run: Mapping[str, Any], links: Mapping[str, str], store: Store) -> None:
        self._run = dict(run)
        self._store = store
        self.links = dict(links)

    @classmethod
    def of(cls, job: Job, store: Store, run_id: str) -> Self:
        """Return the reporter of a job's run."""
        run = {
            "team": job.team,
            "job": job.name,
            "run_key": job.record.run_key,
            "run": job.inputs.run_key if job.inputs else "",
            "backfill": job.backfill,
        }
        return cls(run, {"airflow": run_url(layout.dag_id(job.team, job.name), run_id)}, store)

    def as_json(self) -> dict[str, Any]:
        """Return the arguments of the constructor without the store, for a trigger to report further."""
        return {"run": self._run, "links": self.links}

    def running(self, message: str) -> None:
        """Write the run's current activity."""
        self.report("running", message)

    def trainer_ended(self, reason: str) -> None:
        """Write that no trainer runs, until the task says what follows; not over a stop that is reported."""
        self.report("running", f"The trainer {reason}. No trainer runs now", unless={"failed"})

    def interrupted(self, *, retried: bool) -> None:
        """Write that the training was ended from outside, and what follows."""
        if retried:
            self.running("The training was interrupted. Airflow retries it: it resumes at its last trial.")
        else:
            self.report("failed", INTERRUPTED)

    def report(
        self,
        state: State,
        message: str,
        errors: list[dict[str, Any]] | None = None,
        *,
        unless: Collection[State] = (),
    ) -> None:
        """Write the status, never over that of a newer submission or one of ``unless``.

        A backfill is only logged.
        """
        if self._run["backfill"]:
            log.info("%s: %s", state, visible_lines(message))
            return
        update_run_status(
            self._store,
            self._run["team"],
            self._run["job"],
            self._run["run_key"],
            run=self._run["run"],
            state=state,
            message=message,
            errors=errors or [],
            links=self.links,
            unless=unless,
        )


def run_url(dag_id: str, run_id: str) -> str:
    """Return the URL of a run's page in Airflow."""
    return f"{airflow_url()}/dags/{quote(dag_id)}/runs/{quote(run_id, safe='')}"


def report_failure(context: Mapping[str, Any]) -> None:
    """Report the failure of a task: Airflow's ``on_failure_callback``."""
    task = context["task_instance"]
    issues: list[dict[str, Any]] = []
    exception = context.get("exception")
    message = str(exception) if isinstance(exception, Exception) else "the task was killed or timed out"
    try:
        job = job_of(context)
    except UserError as error:
        job, issues = admitted_job_of(context), [issue.as_json() for issue in error.issues]
    store = open_root(airflow_settings())
    if task.task_id == TaskId.SEARCH:
        try:
            error_file = json.loads(store.get(job.run_file("error.json")))
            message, issues = error_file["message"], error_file["issues"]
        except StoreError as error:
            log.info("the trainer wrote no error.json: %s", error)
    reporter = StatusReporter.of(job, store, context["run_id"])
    count = f", {len(issues)} errors; the first" if len(issues) > 1 else ""
    message = f"The task {task.task_id} failed{count}: {message.splitlines()[0] if issues else message}"
    try:
        reporter.report("failed", message, issues)
    except DmlsError as error:
        log.warning("could not write the status: %s", error)
    notify(job.owner, "failed", f"{job.team}/{job.name}", message, reporter.links)
