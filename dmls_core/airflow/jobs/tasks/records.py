"""Record decisions and deployments in the run's folder, on the model card, and in MLflow."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from dmls_core.airflow.jobs.tasks.base import JobRun
from dmls_core.airflow.task_id import TaskId
from dmls_core.errors import ObjectMissingError, TrackingError
from dmls_core.store import layout

if TYPE_CHECKING:
    from dmls_core.serving import DeployedVersion, ScalingChoice
    from dmls_core.tracking.decision import Decision


log = logging.getLogger(__name__)

_SERVING_TAG = "dmls.serving"


def record_decision(run: JobRun, decision: Decision) -> None:
    """Write a decision into the run's folder, and into MLflow unless ``tag_decision`` does so later."""
    document = decision.as_json(run.result_of(TaskId.REGISTER)["model_version"])
    run.store.put(run.job.run_file(layout.DECISION), json.dumps(document, indent=1).encode())
    if not decision.deploy:
        tag_decision(run)


def tag_decision(run: JobRun) -> None:
    """Copy the decision from the run's folder to the model's version in MLflow, if MLflow answers."""
    from dmls_core.tracking.decision import DECISION_TAG, REASON_TAG

    decision = json.loads(run.store.get(run.job.run_file(layout.DECISION)))
    _tag(run, {DECISION_TAG: decision["decision"], REASON_TAG: f"{decision['by']}: {decision['reason']}"})


def record_deployment(run: JobRun, served: DeployedVersion, choice: ScalingChoice) -> None:
    """Write a deployment, unless an earlier try did; ``served`` has no proof if the task is repeated."""
    from dmls_core.serving.predict.card import CARD, card_of_deployed
    from dmls_core.serving.repository.options import describe_scaling

    record, card = run.job.run_file(layout.DEPLOYMENT), run.job.run_file(layout.DEPLOYED_CARD)
    if served.proof is None and run.store.head(card) is not None:
        return
    at = datetime.now(UTC).isoformat(timespec="seconds")
    by = f"Airflow run {run.context['run_id']}"
    document = {
        "schema": 1,
        "model": served.model,
        "version": served.version,
        "previous": served.previous,
        "golden_rows": served.proof.rows if served.proof else None,
        "milliseconds": served.proof.milliseconds if served.proof else None,
        "fil_backend": served.proof.backend if served.proof else None,
        "serving": choice.as_json(),
        "by": by,
        "at": at,
    }
    run.store.put(record, json.dumps(document, indent=1).encode())
    facts = {"Version in Triton": served.version, "Deployed": f"{at}, by {by}"}
    if served.proof:
        facts["One row takes"] = f"{served.proof.milliseconds:.2f} ms (median, over the slower protocol)"
        facts["Served by"] = served.proof.served_by
    facts["Served with"] = choice.text
    for measurement in choice.measured:
        rates = " to ".join(f"{rate:,.0f}" for rate in (min(measurement.rates), max(measurement.rates)))
        name = f"Measured with {describe_scaling(measurement.scaling)}"
        facts[f"{name}, again" if name in facts else name] = f"{rates} requests per second, 8 clients"
    _tag(run, {_SERVING_TAG: choice.text})
    with suppress(ObjectMissingError):  # runs of earlier releases have no card
        page = run.store.get(run.job.run_file(f"{layout.MODEL}{CARD}")).decode()
        run.store.put(card, card_of_deployed(page, facts).encode())


def _tag(run: JobRun, tags: Mapping[str, str]) -> None:
    """Set tags on the model's version; go on if MLflow does not answer."""
    from dmls_core.tracking.registry import tag_version

    version = run.result_of(TaskId.REGISTER)["model_version"]
    short = {key: value[:5000] for key, value in tags.items()}
    try:
        tag_version(run.settings.mlflow_uri, run.job.model_name, version, short)
    except TrackingError as error:
        log.warning("MLflow does not have the tags %s of version %s: %s", ", ".join(tags), version, error)
