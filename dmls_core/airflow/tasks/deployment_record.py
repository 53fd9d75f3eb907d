"""The record of a deployment in the run's folder: as data, and on the model card."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from dmls_core.airflow.task_id import TaskId
from dmls_core.airflow.tasks.base import JobRun
from dmls_core.errors import ObjectMissingError, TrackingError
from dmls_core.store import layout

if TYPE_CHECKING:
    from dmls_core.serving import Choice, Deployment

log = logging.getLogger(__name__)

SERVING_TAG = "dmls.serving"


def record_deployment(run: JobRun, done: Deployment, choice: Choice) -> None:
    """Write how a model went live into its run's folder, unless that was written by an earlier attempt.

    Args:
        run: the run.
        done: what went live; its proof is missing where the step is a repeated one.
        choice: how it answers several requests at once, and what was measured of that.
    """
    from dmls_core.serving.card import CARD, card_of_deployed
    from dmls_core.serving.options import describe

    record, card = run.job.run_file(layout.DEPLOYMENT), run.job.run_file(layout.DEPLOYED_CARD)
    if done.proof is None and run.store.head(card) is not None:
        return
    at = datetime.now(UTC).isoformat(timespec="seconds")
    by = f"Airflow run {run.context['run_id']}"
    document = {
        "schema": 1,
        "model": done.model,
        "version": done.version,
        "previous": done.previous,
        "golden_rows": done.proof.rows if done.proof else None,
        "milliseconds": done.proof.milliseconds if done.proof else None,
        "serving": choice.as_json(),
        "by": by,
        "at": at,
    }
    run.store.put(record, json.dumps(document, indent=1).encode())
    facts = {"Version in Triton": done.version, "Deployed": f"{at}, by {by}"}
    if done.proof:
        facts["One row takes"] = f"{done.proof.milliseconds:.2f} ms (median, over the slower protocol)"
    facts["Served with"] = choice.text
    for found in choice.measured:
        rates = " to ".join(f"{rate:,.0f}" for rate in (min(found.rates), max(found.rates)))
        name = f"Measured with {describe(found.scaling)}"
        facts[f"{name}, again" if name in facts else name] = f"{rates} requests per second, 8 clients"
    _tag(run, choice)
    with suppress(ObjectMissingError):  # runs of earlier releases have no card
        page = run.store.get(run.job.run_file(f"{layout.MODEL}{CARD}")).decode()
        run.store.put(card, card_of_deployed(page, facts).encode())


def _tag(run: JobRun, choice: Choice) -> None:
    """Tell on the model's version in MLflow how it is served, if MLflow answers."""
    from dmls_core.tracking import tag_version

    version = run.result_of(TaskId.REGISTER)["model_version"]
    try:
        tag_version(run.settings.mlflow_uri, run.job.model_name, version, {SERVING_TAG: choice.text[:5000]})
    except TrackingError as error:
        log.warning("how the model is served is not in MLflow: %s", error)
