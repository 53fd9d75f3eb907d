"""A run that takes too long is told of: Airflow's deadline alerts, whose callback the triggerer runs.

A synchronous callback would need a slot of the executor, which a job that hangs may be holding, and in
Airflow 3.3 is refused the connections that it asks for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from airflow.sdk.definitions.callback import AsyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference

from dmls_core.airflow.telling.notify import notify
from dmls_core.airflow.telling.status import run_page

log = logging.getLogger(__name__)

ENDED = ("success", "failed")


def deadline_alert(record: Mapping[str, Any], spec: Mapping[str, Any]) -> DeadlineAlert | None:
    """Return the alert that ``[schedule] deadline`` asks for, if it does.

    Args:
        record: of the job, as JSON.
        spec: as JSON; that of an earlier release may lack the key.
    """
    seconds = (spec["schedule"] or {}).get("deadline")
    if seconds is None:
        return None
    owner = {key: spec["owner"][key] for key in ("notify", "email")}
    about = {"job": f"{record['team']}/{record['name']}", "owner": owner, "seconds": seconds}
    return DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=timedelta(seconds=seconds),
        callback=AsyncCallback(tell_late, kwargs=about),
    )


async def tell_late(job: str, owner: dict[str, Any], seconds: float, context: dict[str, Any]) -> None:
    """Tell the owner of a job that a run of it has not ended in time.

    Airflow keeps the deadline of a run that failed before it, and a backfill is followed where it was asked
    for: neither is told of.

    Args:
        job: ``<team>/<job>``.
        owner: channels and address, of ``[owner]``.
        seconds: that the run may have taken.
        context: the run, as Airflow's scheduler saw it when the time was over.
    """
    run = context["dag_run"]
    if run["state"] in ENDED or run["run_type"] == "backfill":
        log.info("%s of %s is not told of: %s, %s", run["dag_run_id"], job, run["run_type"], run["state"])
        return
    told = f"The run {run['dag_run_id']} has not ended {seconds:,.15g} s after it was queued."
    links = {"airflow": run_page(run["dag_id"], run["dag_run_id"])}
    await asyncio.to_thread(notify, owner, "late", job, told, links)
