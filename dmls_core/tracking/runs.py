"""Record a finished training run and its trials in MLflow; repeated calls complete what is missing."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmls_core.errors import TrackingError
from dmls_core.html.formats import describe_ensemble
from dmls_core.store import layout
from dmls_core.tracking.connection import connect, reaching, run_url
from dmls_core.tracking.model_folder import log_model
from dmls_core.tracking.registry import RUN_KEY_TAG, register_model

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

_TRIAL_TAG = "dmls.trial"

MAX_CHILDREN = 200
"""Number of trials with a child run: the best ones. A child run takes three requests. Every trial is in the
parent's metric ``trial_score``, which takes one request per thousand, and in ``trials.json``."""

_THREADS = 6
_PAGE = 1000
_MESSAGE_CHARACTERS = 2000


def log_trials(
    client: MlflowClient, parent: Run, trials: Sequence[Mapping[str, Any]], direction: str
) -> None:
    """Record a run's trials (``trials/*.json``, by number); a repeated call completes what is missing."""
    from mlflow.entities import Metric

    # Times are derived from the parent's start, one trial after the other: so a repeated call logs the same
    # points, which MLflow keeps once.
    ends = accumulate((1000 * t["seconds"] for t in trials), initial=float(parent.info.start_time))
    starts = {trial["number"]: int(start) for trial, start in zip(trials, ends, strict=False)}
    scored = [trial for trial in trials if trial["value"] is not None]
    scores = [Metric("trial_score", t["value"], starts[t["number"]], t["number"]) for t in scored]
    client.log_batch(parent.info.run_id, metrics=scores)
    children = _children(client, parent)

    def log(trial: Mapping[str, Any]) -> None:
        number = trial["number"]
        _log_child(client, parent, trial, starts[number], children.get(str(number)))

    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(log, _best(trials, direction)))


def _best(trials: Sequence[Mapping[str, Any]], direction: str) -> list[Mapping[str, Any]]:
    """Return the trials that get a child run; failed ones only if there is room."""
    sign = -1.0 if direction == "maximize" else 1.0
    ranked = sorted(trials, key=lambda t: (t["value"] is None, sign * (t["value"] or 0.0)))
    return ranked[:MAX_CHILDREN]


def _children(client: MlflowClient, parent: Run) -> dict[str, Run]:
    """Return the existing child runs by the number in their tag."""
    runs = client.search_runs(
        [parent.info.experiment_id],
        f"tags.`mlflow.parentRunId` = '{parent.info.run_id}'",
        max_results=_PAGE,
        order_by=["attributes.start_time DESC"],
    )
    return {run.data.tags.get(_TRIAL_TAG, ""): run for run in runs}


def _log_child(
    client: MlflowClient, parent: Run, trial: Mapping[str, Any], start: int, child: Run | None
) -> None:
    from mlflow.entities import Metric, Param

    if child and child.info.status != "RUNNING":
        return
    if child is None:
        child = client.create_run(
            parent.info.experiment_id,
            start_time=start,
            run_name=f"trial {trial['number']}",
            tags={"mlflow.parentRunId": parent.info.run_id, **_trial_tags(trial)},
        )
    end = start + int(1000 * trial["seconds"])
    finished = trial["value"] is not None
    metrics = [Metric("seconds", trial["seconds"], end, 0)]
    if finished:
        metrics.append(Metric("cv_score", trial["value"], end, 0))
        metrics += [Metric("fold_score", value, end, fold) for fold, value in enumerate(trial["values"])]
    params = [Param(name, str(value)) for name, value in trial["params"].items()]
    client.log_batch(child.info.run_id, metrics=metrics, params=params)
    client.set_terminated(child.info.run_id, "FINISHED" if finished else "FAILED", end)


def _trial_tags(trial: Mapping[str, Any]) -> dict[str, str]:
    tags = {_TRIAL_TAG: str(trial["number"]), "dmls.engine": trial["engine"]}
    if trial.get("model"):
        tags["dmls.model"] = trial["model"]
    if trial["same_as"] is not None:
        tags["dmls.same_as_trial"] = str(trial["same_as"])
    if trial["message"]:
        tags["dmls.message"] = trial["message"][:_MESSAGE_CHARACTERS]
    return tags


COMPARED = ("champion_score", "challenger_score", "difference", "probability")
"""Figures of a conclusive comparison with the champion, which become metrics of the run."""


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
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        raise TrackingError(f"MLflow has an experiment {name} but does not list it")
    if experiment.lifecycle_stage == "deleted":
        client.restore_experiment(experiment.experiment_id)
    return str(experiment.experiment_id)


def _find_run(client: MlflowClient, experiment_id: str, run_key: str) -> Run | None:
    runs = client.search_runs(
        [experiment_id],
        f"tags.`{RUN_KEY_TAG}` = '{run_key}'",
        max_results=1,
        order_by=["attributes.start_time ASC"],
    )
    return runs[0] if runs else None


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
    if result.get("ensemble"):
        params.append(Param("ensemble", describe_ensemble(result["ensemble"])))
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
    """Return the run's metrics: those on the holdout by their names, ``score``, and times.

    A metric has no caveat: of a comparison on rows that the champion may have been trained on, there is none.
    """
    comparison = result.get("comparison") or {}
    conclusive = comparison.get("conclusive", comparison.get("comparable"))
    metrics = {
        result["metric"]: result["score"],
        "score": result["score"],
        "cv_score": result["cv_score"],
        "n_trials": result["n_trials"],
        **result["holdout"]["metrics"],
        **{f"seconds.{phase}": seconds for phase, seconds in result["seconds"].items()},
        **{f"comparison.{name}": comparison[name] for name in COMPARED if conclusive},
    }
    return {name: float(value) for name, value in metrics.items() if value is not None}
