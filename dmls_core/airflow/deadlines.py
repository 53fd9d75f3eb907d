"""``[schedule] deadline``: Airflow's deadline alerts, whose callback the triggerer runs.

A synchronous callback would need a slot of the executor, which a job that hangs may hold, and Airflow 3.3
refuses it the connections that it asks for. Airflow's database stores the callback's path.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from airflow.sdk.definitions.callback import AsyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference

from dmls_core.airflow.notifications import notify
from dmls_core.airflow.status import run_url

log = logging.getLogger(__name__)

FINISHED = ("success", "failed")


def deadline_alert(record: Mapping[str, Any], spec: Mapping[str, Any]) -> DeadlineAlert | None:
    """Return the alert that ``[schedule] deadline`` asks for, if any.

    Args:
        record: the job's record as JSON.
        spec: its spec as JSON; the spec of an earlier release may lack the key.
    """
    seconds = (spec["schedule"] or {}).get("deadline")
    if seconds is None:
        return None
    owner = {key: spec["owner"][key] for key in ("notify", "email")}
    arguments = {"job": f"{record['team']}/{record['name']}", "owner": owner, "seconds": seconds}
    return DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=timedelta(seconds=seconds),
        callback=AsyncCallback(notify_missed_deadline, kwargs=arguments),
    )


async def notify_missed_deadline(
    job: str, owner: dict[str, Any], seconds: float, context: dict[str, Any]
) -> None:
    """Notify the owner of a job that a run has not finished in time.

    Two kinds of runs are skipped: a run that failed before its deadline, which Airflow keeps, and a
    backfill, which its user follows in Airflow.

    Args:
        job: ``<team>/<job>``.
        owner: ``[owner]`` of the spec: channels and email address.
        seconds: the deadline, counted from when the run was queued.
        context: the run as Airflow's scheduler saw it at the deadline.
    """
    run = context["dag_run"]
    if run["state"] in FINISHED or run["run_type"] == "backfill":
        log.info(
            "no notification for %s of %s: %s, %s", run["dag_run_id"], job, run["run_type"], run["state"]
        )
        return
    message = f"The run {run['dag_run_id']} has not finished {seconds:,.15g} s after it was queued."
    links = {"airflow": run_url(run["dag_id"], run["dag_run_id"])}
    await asyncio.to_thread(notify, owner, "late", job, message, links)
