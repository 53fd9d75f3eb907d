"""``[schedule] deadline``: Airflow's deadline alerts, whose callback the triggerer runs.

A synchronous callback would need an executor slot, which a hanging job may hold, and Airflow 3.3 refuses it
connections. Airflow's database stores the callback's path.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from airflow.sdk.definitions.callback import AsyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference

from dmls_core.airflow.notifiers import notify
from dmls_core.airflow.runs.status import run_url

log = logging.getLogger(__name__)

_FINISHED = ("success", "failed")


def deadline_alert(record: Mapping[str, Any], spec: Mapping[str, Any]) -> DeadlineAlert | None:
    """Return the alert of ``[schedule] deadline``, if any; specs of earlier releases may lack the key."""
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
    """Notify a job's owner that a run has not finished ``seconds`` after it was queued.

    Skip runs that failed before, which Airflow keeps, and backfills, which their user follows in Airflow.
    ``context`` is the run as Airflow's scheduler saw it at the deadline.
    """
    run = context["dag_run"]
    if run["state"] in _FINISHED or run["run_type"] == "backfill":
        log.info(
            "no notification for %s of %s: %s, %s", run["dag_run_id"], job, run["run_type"], run["state"]
        )
        return
    message = f"The run {run['dag_run_id']} has not finished {seconds:,.15g} s after it was queued."
    links = {"airflow": run_url(run["dag_id"], run["dag_run_id"])}
    await asyncio.to_thread(notify, owner, "late", job, message, links)
