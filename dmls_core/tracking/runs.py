"""Record a finished training run in MLflow; repeated calls complete what is missing."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmls_core.errors import TrackingError
from dmls_core.store import layout
from dmls_core.tracking.connection import connect, reaching, run_url
from dmls_core.tracking.model_folder import log_model
from dmls_core.tracking.registry import RUN_KEY_TAG, register_model
from dmls_core.tracking.trials import log_trials

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

COMPARED = ("champion_score", "challenger_score", "difference", "probability")
"""Figures of the comparison with the champion that become metrics of the run."""


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """A training run in MLflow, its page, and its version of the registered model ``<team>.<job>``."""

    run_id: str
    url: str
    model_version: int


def log_run(
    uri: str,
    result: Mapping[str, Any],
    folder: Path,
    *,
    spec: Mapping[str, Any],
    airflow_url: str = "",
    public_uri: str = "",
    tags: Mapping[str, str] | None = None,
    challenger: bool = True,
) -> TrackedRun:
    """Record a run, its trials and its model in MLflow, and make the model the challenger.

    The run is identified by its key: a repeated call completes what is missing. Without ``challenger`` the
    model gets no alias. ``folder`` is a copy of the run's folder with ``trials/``, ``model/`` and the
    trainer's other files, ``spec`` the canonical spec. ``airflow_url`` is the run's page in Airflow,
    ``public_uri`` the MLflow server as a browser reaches it, if that differs. ``tags`` are added to the run
    and its model.

    Raises:
        TrackingError: MLflow does not answer, or rejects a request.
    """
    client = connect(uri)
    with reaching(uri, f"record run {result['run_key']}"):
        tags = {**_tags(result, airflow_url), **(tags or {})}
        experiment_id = _experiment(client, result)
        run = _find_run(client, experiment_id, result["run_key"]) or client.create_run(
            experiment_id,
            start_time=int(1000 * (time.time() - result["seconds"]["total"])),
            run_name=result["run_key"],
            tags=tags,
        )
        model_id = log_model(client, run, folder / "model", result["versions"])
        if run.info.status == "RUNNING":
            _log_content(client, run, result, folder, spec)
            end = run.info.start_time + int(1000 * result["seconds"]["total"])
            client.set_terminated(run.info.run_id, "FINISHED", end)
        description = (
            f"{result['model']} ({result['engine']}): {result['metric']} {result['score']:.4f} on the holdout"
        )
        name = layout.model_name(result["team"], result["job"])
        version = register_model(client, run, name, model_id, description, challenger=challenger)
    return TrackedRun(run.info.run_id, run_url(public_uri or uri, experiment_id, run.info.run_id), version)


def _experiment(client: MlflowClient, result: Mapping[str, Any]) -> str:
    """Return the id of the job's experiment; create or restore it if needed."""
    from mlflow.exceptions import MlflowException

    name = f"dmls/{result['team']}/{result['job']}"
    try:
        tags = {"dmls.team": result["team"], "dmls.job": result["job"]}
        return client.create_experiment(name, tags=tags)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    found = client.get_experiment_by_name(name)
    if found is None:
        raise TrackingError(f"MLflow has an experiment {name} but does not list it")
    if found.lifecycle_stage == "deleted":
        client.restore_experiment(found.experiment_id)
    return str(found.experiment_id)


def _find_run(client: MlflowClient, experiment_id: str, run_key: str) -> Run | None:
    found = client.search_runs(
        [experiment_id],
        f"tags.`{RUN_KEY_TAG}` = '{run_key}'",
        max_results=1,
        order_by=["attributes.start_time ASC"],
    )
    return found[0] if found else None


def _tags(result: Mapping[str, Any], airflow_url: str) -> dict[str, str]:
    tags = {
        RUN_KEY_TAG: result["run_key"],
        "dmls.team": result["team"],
        "dmls.job": result["job"],
        "dmls.model": result["model"],
        "dmls.engine": result["engine"],
        "dmls.metric": result["metric"],
        "dmls.spec_sha256": result["spec_sha256"],
        "dmls.data_hash": result["data"]["hash"],
        "mlflow.source.name": "dmls",
    }
    if comparison := result.get("comparison"):
        tags |= {
            "dmls.compared_with": str(comparison["champion_version"]),
            "dmls.comparison": comparison["reason"][:5000],
        }
    if airflow_url:
        tags |= {
            "dmls.airflow_url": airflow_url,
            "mlflow.note.content": f"[The run in Airflow]({airflow_url})",
        }
    return tags


def _log_content(
    client: MlflowClient, run: Run, result: Mapping[str, Any], folder: Path, spec: Mapping[str, Any]
) -> None:
    """Log parameters, metrics, trials and files; a repeated call changes nothing."""
    from mlflow.entities import Metric, Param

    run_id, at = run.info.run_id, run.info.start_time
    params = [Param(name, str(value)) for name, value in result["best_params"].items()]
    metrics = [Metric(name, value, at, 0) for name, value in _metrics(result).items()]
    client.log_batch(run_id, metrics=metrics, params=params)
    trials = [json.loads(path.read_bytes()) for path in sorted((folder / "trials").glob("*.json"))]
    log_trials(client, run, trials, result["direction"])
    client.log_dict(run_id, dict(spec), "spec.json")
    client.log_dict(run_id, {"schema": 1, "trials": trials}, "trials.json")
    for name in ("result.json", "report.html"):
        if (folder / name).is_file():
            client.log_artifact(run_id, str(folder / name))
    if (folder / "validation").is_dir():
        client.log_artifacts(run_id, str(folder / "validation"), "validation")


def _metrics(result: Mapping[str, Any]) -> dict[str, float]:
    """Return the run's metrics: those on the holdout by their names, ``score``, and times."""
    metrics = {
        result["metric"]: result["score"],
        "score": result["score"],
        "cv_score": result["cv_score"],
        "n_trials": result["n_trials"],
        **result["holdout"]["metrics"],
        **{f"seconds.{phase}": seconds for phase, seconds in result["seconds"].items()},
        **{f"comparison.{name}": (result.get("comparison") or {}).get(name) for name in COMPARED},
    }
    return {name: float(value) for name, value in metrics.items() if value is not None}
