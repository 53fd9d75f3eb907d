"""Read a job's runs, tasks and logs from Airflow's REST API, and approve deployments."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from dmls_core.airflow import approval
from dmls_core.airflow.task_id import TaskId
from dmls_core.devstack.airflow_client import AirflowClient
from dmls_core.errors import NotFoundError, PlatformError
from dmls_core.settings import Settings
from dmls_core.store import layout

REQUEST_SECONDS = 30.0
"""Longest wait for Airflow to list an approval after the status announces it."""

ANSWER_SECONDS = 120.0
"""Longest wait for Airflow to continue after the approval."""


@dataclass(frozen=True, slots=True)
class Task:
    """One task instance; ``map_index`` is -1 unless it is mapped, ``seconds`` is None until it has ended."""

    task_id: str
    map_index: int
    state: str
    try_number: int
    seconds: float | None


class JobRuns:
    """The runs of one job's DAG; raises ``PlatformError`` if Airflow does not answer or has no address."""

    def __init__(self, settings: Settings, team: str, name: str) -> None:
        self.dag_id = layout.dag_id(team, name)
        self._rest = AirflowClient(
            settings.require("airflow_url"),
            settings.require("airflow_username"),
            settings.require("airflow_password"),
        )

    def latest(self) -> str:
        """Return the id of the latest run; raise ``NotFoundError`` if there is none."""
        answer = self._rest.get(self._path("dagRuns?order_by=-run_after&limit=1"))
        if not (answer and answer["dag_runs"]):
            raise NotFoundError(f"Airflow has no run of {self.dag_id} yet; try again in a few seconds")
        run: str = answer["dag_runs"][0]["dag_run_id"]
        return run

    def tasks(self, run: str) -> list[Task]:
        """Return the tasks of a run in the order of their start; those not started come last."""
        found = self._get(f"dagRuns/{quote(run)}/taskInstances")["task_instances"]
        found.sort(key=lambda entry: (entry["start_date"] is None, entry["start_date"] or ""))
        return [
            Task(
                entry["task_id"],
                entry["map_index"],
                entry["state"] or "none",
                entry["try_number"],
                entry["duration"],
            )
            for entry in found
        ]

    def log(self, run: str, task: Task) -> Iterator[str]:
        """Yield the lines of a task's latest try."""
        path = f"dagRuns/{quote(run)}/taskInstances/{quote(task.task_id)}/logs/{task.try_number}"
        answer = self._get(f"{path}?map_index={task.map_index}&full_content=true")
        for entry in answer["content"]:
            yield entry if isinstance(entry, str) else _line(entry)

    def pending_approval(self, run: str) -> tuple[str, str] | None:
        """Return subject and body of the approval that a run waits for; ``None`` if there is none."""
        answer = self._get(f"dagRuns/{quote(run)}/hitlDetails?response_received=false")
        for entry in answer["hitl_details"]:
            if approval.can_be_answered(entry, "Approve"):
                return entry["subject"], entry["body"] or ""
        return None

    def approve_latest(self, show: Callable[[str], None]) -> None:
        """Approve what the latest run waits for, as a user does on Airflow's page, until Airflow continues.

        ``show`` is called with the subject. Raises ``NotFoundError`` if the run waits for no approval, and
        ``PlatformError`` if Airflow does not continue.
        """
        run = self.latest()
        subject = ""
        end = time.monotonic() + REQUEST_SECONDS
        while not (subject and self._has_ended(run)):
            if asked := self.pending_approval(run):
                if not subject:
                    show(asked[0])
                subject = asked[0]
                path = f"dagRuns/{quote(run)}/taskInstances/{TaskId.APPROVE}/-1/hitlDetails"
                time.sleep(approval.PAUSE_SECONDS)
                self._rest.call("PATCH", self._path(path), approval.body_of("Approve"))
                end = time.monotonic() + ANSWER_SECONDS
            if time.monotonic() > end:
                if subject:
                    raise PlatformError(f"Airflow does not continue {self.dag_id} although it was approved")
                raise NotFoundError(f"the latest run of {self.dag_id} waits for no approval")
            time.sleep(0.5)

    def _has_ended(self, run: str) -> bool:
        return all(
            approval.has_settled(task.state) for task in self.tasks(run) if task.task_id == TaskId.APPROVE
        )

    def _get(self, path: str) -> dict[str, Any]:
        answer: dict[str, Any] = self._rest.call("GET", self._path(path))
        return answer

    def _path(self, path: str) -> str:
        return f"/api/v2/dags/{quote(self.dag_id)}/{path}"


def _line(entry: dict[str, Any]) -> str:
    """Return a structured log message as a line."""
    time = str(entry.get("timestamp") or "")[:19].replace("T", " ")
    level = str(entry.get("level") or "").upper()
    head = " ".join(part for part in (time, f"{level:<7}" if level else "") if part)
    lines = str(entry["event"]).splitlines() or [""]
    for detail in entry.get("error_detail") or ():
        lines.append(f"{detail.get('exc_type', '')}: {detail.get('exc_value', '')}".rstrip())
    return "\n".join(f"{head} {line}" if head else line for line in lines)
