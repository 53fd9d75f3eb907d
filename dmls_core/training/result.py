"""Describe a run: ``result.json``."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from dmls_core.data import content_hash
from dmls_core.evaluate import HoldoutScores
from dmls_core.models.engines import Fitted
from dmls_core.search import SearchOutcome, SearchTask
from dmls_core.training.prepare import Prepared
from dmls_core.training.request import Job

SCHEMA = 1

LIBRARIES = ("optuna", "polars", "great-expectations")
"""Libraries that every run uses, with any engine."""


def describe_run(
    job: Job,
    data: Prepared,
    task: SearchTask,
    outcome: SearchOutcome,
    fitted: Fitted,
    scores: HoldoutScores,
) -> dict[str, Any]:
    """Return ``result.json`` but for ``seconds`` and ``artifacts``, which are known last."""
    spec = job.spec
    importances = fitted.importances().tolist()
    return {
        "schema": SCHEMA,
        "status": "finished",
        "team": job.request.team,
        "job": job.request.name,
        "run_key": job.key,
        "spec_sha256": spec.sha256,
        "task": spec.task,
        "model": task.model.name,
        "engine": task.engine.device,
        "metric": spec.search.metric,
        "direction": task.direction,
        "score": scores.score,
        "cv_score": outcome.best.value,
        "best_trial": outcome.best.number,
        "best_params": fitted.parameters(),
        "n_trials": outcome.scored,
        "folds": len(task.folds),
        "seed": task.seed,
        "labels": list(data.labels) if data.labels else None,
        "features": list(data.encoder.feature_names),
        "importances": dict(zip(data.encoder.feature_names, importances, strict=True)),
        "holdout": {
            "metrics": scores.metrics,
            "confusion": scores.confusion,
            "residuals": scores.residuals,
        },
        "data": describe_data(job, data),
        "warnings": list(data.warnings),
        "versions": versions((*task.engine.libraries, *LIBRARIES)),
        "finished": datetime.now(UTC).isoformat(timespec="milliseconds"),
    }


def describe_data(job: Job, data: Prepared) -> dict[str, Any]:
    """Return ``data`` of ``result.json``, by which later challengers identify new rows."""
    return {
        "rows": len(data.train) + len(data.test),
        "train_rows": len(data.train),
        "holdout_rows": len(data.test),
        "hash": content_hash([file.path for file in job.files]),
        "objects": [file.as_json() for file in job.files],
        "since": _iso(job.request.since),
        "until": _iso(job.request.until),
        "split": {**job.spec.evaluation.model_dump(), "seed": job.spec.search.seed},
    }


def _iso(moment: datetime | None) -> str | None:
    return moment.astimezone(UTC).isoformat(timespec="seconds") if moment else None


BUILDS = {
    "xgboost": ("xgboost", "xgboost-cpu"),
    "cuml": ("cuml-cu13", "cuml-cu12", "cuml"),
    "cupy": ("cupy-cuda13x", "cupy-cuda12x", "cupy"),
}
"""Library -> distributions that contain it."""


def versions(libraries: Iterable[str]) -> dict[str, str]:
    """Return the versions of Python, of DMLS and of the installed ``libraries``."""
    found = {"python": platform.python_version()}
    for library in ("dmls", *libraries):
        for distribution in BUILDS.get(library, (library,)):
            try:
                found[library] = version(distribution)
                break
            except PackageNotFoundError:
                continue
    return found
