"""Trials in MLflow: every trial's score in the parent run, and child runs of the best trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

TRIAL_TAG = "dmls.trial"

MAX_CHILDREN = 200
"""Number of trials with a child run: the best ones. A child run takes three requests. Every trial is in the
parent's metric ``trial_score``, which takes one request per thousand, and in ``trials.json``."""

THREADS = 6
PAGE = 1000
MESSAGE_CHARACTERS = 2000


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
    known = _children(client, parent)

    def log(trial: Mapping[str, Any]) -> None:
        number = trial["number"]
        _log_child(client, parent, trial, starts[number], known.get(str(number)))

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(log, _best(trials, direction)))


def _best(trials: Sequence[Mapping[str, Any]], direction: str) -> list[Mapping[str, Any]]:
    """Return the trials that get a child run; failed ones only if there is room."""
    sign = -1.0 if direction == "maximize" else 1.0
    ranked = sorted(trials, key=lambda t: (t["value"] is None, sign * (t["value"] or 0.0)))
    return ranked[:MAX_CHILDREN]


def _children(client: MlflowClient, parent: Run) -> dict[str, Run]:
    """Return the existing child runs by the number in their tag."""
    found = client.search_runs(
        [parent.info.experiment_id],
        f"tags.`mlflow.parentRunId` = '{parent.info.run_id}'",
        max_results=PAGE,
        order_by=["attributes.start_time DESC"],
    )
    return {run.data.tags.get(TRIAL_TAG, ""): run for run in found}


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
            tags={"mlflow.parentRunId": parent.info.run_id, **_tags(trial)},
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


def _tags(trial: Mapping[str, Any]) -> dict[str, str]:
    tags = {TRIAL_TAG: str(trial["number"]), "dmls.engine": trial["engine"]}
    if trial.get("model"):
        tags["dmls.model"] = trial["model"]
    if trial["same_as"] is not None:
        tags["dmls.same_as_trial"] = str(trial["same_as"])
    if trial["message"]:
        tags["dmls.message"] = trial["message"][:MESSAGE_CHARACTERS]
    return tags
