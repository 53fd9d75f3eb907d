"""Give or refuse the approval that a job's run waits for, as on Airflow's own page."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from dmls_core.airflow import approval
from dmls_core.airflow.approval import Answer
from dmls_core.airflow.task_id import TaskId
from dmls_core.errors import ConflictError
from dmls_core.web.airflow_calls import AirflowCalls, part

ASKING_SECONDS = 60.0
"""The status beside the drop speaks of an approval some moments before Airflow takes an answer."""

SETTLING_SECONDS = 90.0
"""Longest wait for Airflow to take the answer up, which it may ask for once more."""


async def answer_approval(airflow: AirflowCalls, dag_id: str, answer: Answer) -> str:
    """Answer the newest approval that the job's runs wait for; return its subject.

    Args:
        airflow: Airflow's API in the caller's name: it checks whether they may, and records it.
        dag_id: of the job.
        answer: the option chosen.

    Raises:
        ConflictError: nothing waits.
        HTTPException: Airflow refuses.
    """
    subject, task = "", ""
    end = time.monotonic() + ASKING_SECONDS
    while True:
        asked = await _pending(airflow, dag_id, answer)
        if asked:
            if not subject:
                end = time.monotonic() + SETTLING_SECONDS
            subject = asked["subject"]
            run = part(asked["task_instance"]["dag_run_id"])
            task = f"/dags/{part(dag_id)}/dagRuns/{run}/taskInstances/{TaskId.APPROVE}"
            await asyncio.sleep(approval.PAUSE_SECONDS)
            await airflow.call("PATCH", f"{task}/-1/hitlDetails", approval.body_of(answer))
        late = time.monotonic() > end
        if subject and (late or await _has_settled(airflow, task)):
            return subject
        if late:
            raise ConflictError(f"no run of {dag_id} waits for an approval")
        await asyncio.sleep(0.5)


async def _pending(airflow: AirflowCalls, dag_id: str, answer: Answer) -> dict[str, Any] | None:
    path = f"/dags/{part(dag_id)}/dagRuns/~/hitlDetails?response_received=false&order_by=-run_after"
    listed = (await airflow.call("GET", path))["hitl_details"]
    return next((entry for entry in listed if approval.can_be_answered(entry, answer)), None)


async def _has_settled(airflow: AirflowCalls, task: str) -> bool:
    return approval.has_settled((await airflow.call("GET", task))["state"])
