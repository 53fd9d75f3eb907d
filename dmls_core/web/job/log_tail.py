"""The end of a task's log, as Airflow's own API tells it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dmls_core.web.airflow_calls import AirflowCalls, part

GROUP, END = "::group::", "::endgroup::"
"""Marks by which Airflow's own page folds lines."""

SOURCES = f"{GROUP}Log message source details"


async def read_log_tail(
    airflow: AirflowCalls, dag_id: str, run_id: str, task_id: str, lines: int
) -> list[str]:
    """Return the last lines of the latest try; of a mapped task, of its first; none before it has begun.

    Args:
        airflow: Airflow's API in the caller's name.
        dag_id: of the job.
        run_id: of the run.
        task_id: such as ``search``.
        lines: most lines returned.

    Raises:
        HTTPException: Airflow refuses, or there is no such run.
    """
    run = f"/dags/{part(dag_id)}/dagRuns/{part(run_id)}/taskInstances"
    tries = await airflow.call("GET", f"{run}?task_id={part(task_id)}&order_by=map_index&limit=1")
    found = next((task for task in tries["task_instances"] if task["try_number"]), None)
    if found is None:
        return []
    path = f"{run}/{part(task_id)}/logs/{found['try_number']}?map_index={found['map_index']}"
    answer = await airflow.call("GET", f"{path}&full_content=true")
    return log_lines(answer["content"])[-lines:]


def log_lines(entries: Iterable[dict[str, Any] | str]) -> list[str]:
    """Return Airflow's log as lines: without its marks, and without where it looked for the log."""
    found: list[str] = []
    about_sources = False
    for entry in entries:
        said = entry if isinstance(entry, str) else str(entry.get("event", ""))
        if said.startswith((GROUP, END)):
            about_sources = said.startswith(SOURCES)
        elif not about_sources:
            found += _lines(entry)
    return found


def _lines(entry: dict[str, Any] | str) -> list[str]:
    """Return one message as lines: the time, and what was said; what was wrong, where there was an error."""
    if isinstance(entry, str):
        return entry.splitlines()
    time = str(entry.get("timestamp") or "")[11:19]
    said = str(entry.get("event", "")).splitlines() or [""]
    for detail in entry.get("error_detail") or ():
        said.append(f"{detail.get('exc_type', '')}: {detail.get('exc_value', '')}")
    return [f"{time} {line}".strip() for line in said]
