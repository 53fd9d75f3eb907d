"""Run the phases from the data to ``result.json``; this module imports the heavy libraries."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.data.formats.data_files import content_hash
from dmls_core.data.split.description import split_settings
from dmls_core.evaluate import Diagnostics, Evidence, HoldoutScores, diagnose, score_holdout
from dmls_core.evaluate.insight import describe_insight
from dmls_core.evaluate.report import render_report, search_insight
from dmls_core.hardware import peak_memory, trim_heap
from dmls_core.html.formats import describe_ensemble
from dmls_core.models.engines import Fitted
from dmls_core.models.metrics import compute
from dmls_core.search.task import SearchOutcome, SearchTask
from dmls_core.serving.deployment.signed_models import sign_model
from dmls_core.serving.predict.card import write_card
from dmls_core.spec import Spec
from dmls_core.store import layout
from dmls_core.stored_matrix import StoredMatrix, predict_rows
from dmls_core.training.background_validation import BackgroundValidation
from dmls_core.training.compact import compact_model, describe_compaction, measure_size
from dmls_core.training.comparison import compare_with_champion
from dmls_core.training.ensemble import Chosen, average_boosters, build_ensemble
from dmls_core.training.memory import describe_stored, run_memory
from dmls_core.training.model_folder import describe_size, export_model, write_companions
from dmls_core.training.nodes import open_cluster
from dmls_core.training.prepare import prepare_models, sample_rows
from dmls_core.training.prepared import Prepared
from dmls_core.training.progress import Progress, format_score
from dmls_core.training.request import TrainingJob
from dmls_core.training.run_folder import RunFolder
from dmls_core.training.search import remove_study, run_worker, search_models


def join_search(job: TrainingJob, folder: RunFolder, progress: Progress) -> dict[str, Any]:
    """Run trials of a search that another trainer leads, until none is left."""
    with progress.phase("load"):
        models = prepare_models(job)
    run_worker(job, models, folder, progress, stop=lambda: False)
    return {"schema": 1, "status": "helped", "run_key": job.key, "worker": job.request.worker}


def run_pipeline(
    job: TrainingJob, folder: RunFolder, progress: Progress, validation: BackgroundValidation
) -> dict[str, Any]:
    """Search, refit, export and score; return ``result.json``, which is written last.

    The run finishes only after ``validation`` has succeeded.
    """
    spec = job.spec
    with open_cluster(spec, job.request.out, progress.note) as cluster:
        with progress.phase("load"):
            models = prepare_models(job, cluster, validated=validation.wait)
        if isinstance(models[0].data.test, StoredMatrix) and cluster is None:
            progress.note(describe_stored(run_memory(spec)))
        for warning in models[0].data.warnings:
            progress.warn(warning)
        with progress.phase("search"):
            try:
                winners = search_models(job, models, folder, progress, stop=validation.failed)
            finally:
                # A failed validation stops the search: report that failure, not the stopped search.
                validation.check()
        validation.search_ended()
        data, champion = winners[0][0].data, models[0].data.champion
        warm_start = dict(winners[0][0].candidate.warm_start)
        chosen = [(model.task, outcome) for model, outcome in winners]
        task, outcome = chosen[0]
        engine = task.engine
        # The objectives hold bins, folds and forests, and other models their own matrices.
        del models, winners
        trim_heap()
        with progress.phase("refit"):
            progress.enter("refitting", f"fitting trial {outcome.best.number} on {len(data.train)} rows")
            fitted, compact, ensemble = refit(task, outcome), None, None
        if spec.search.ensemble is True or len(chosen) > 1:
            with progress.phase("ensemble"):
                progress.enter("refitting", _describe_step(chosen))
                fitted, ensemble = combine_trials(spec, data, chosen, fitted)
            progress.note(f"the model is {describe_ensemble(ensemble)}" if ensemble else _NO_ENSEMBLE)
        if spec.deploy.compact:
            with progress.phase("compact"):
                progress.enter("refitting", "looking for a smaller size that loses nothing measurable")
                fitted, compact = _compact_fitted(spec, data, task, outcome, fitted)
            progress.note(describe_compaction(compact) if compact else _NOT_COMPACTED)
    model_folder = job.out / layout.MODEL
    with progress.phase("export"):
        progress.enter("exporting", "exporting the model and comparing it with the original")
        in_memory = predict_rows(lambda rows: fitted.predict(engine.place(rows)), data.test)
        edges = data.encoder.transform(data.edges)
        exported = export_model(
            engine, fitted, data.test, in_memory, edges, model_folder, threads=task.threads
        )
        served = exported.predictions
    trim_heap()
    with progress.phase("score"):
        weights = data.test_roles.weights
        scores = score_holdout(spec.task, spec.search.metric, data.test_target, served, weights)
        write_companions(data, exported, task, spec.search.metric, scores.score, model_folder)
        result = _describe_run(job, data, chosen, fitted, scores)
        if spec.deploy.compact:
            result["compact"] = compact
        if spec.search.ensemble:
            result["ensemble"] = ensemble
        version = job.request.champion_version
        result["warm_start"] = {"champion_version": version, "params": warm_start} if warm_start else None
        result["comparison"] = compare_with_champion(spec, data, served, champion)
    with progress.phase("report"):
        evidence, insight = examine_model(spec, data, task, fitted, served, result)
        size = describe_size(data, task, spec.search.metric, model_folder, smaller_depths=ensemble is None)
        if size is not None:
            result["size"] = size
    for warning in insight.warnings:
        progress.warn(warning)
    progress.seconds["validate"] = validation.finish()
    sign_model(model_folder, layout.model_name(job.request.team, job.request.name), job.key)
    write_card(model_folder, result, spec.as_json())
    write_report(job.out / layout.REPORT, result | {"seconds": progress.rounded()}, spec, outcome, insight)
    _write_insight(job.out / layout.INSIGHT, result, data, spec, outcome, evidence, insight)
    result["artifacts"] = folder.upload(job.out)
    result["seconds"] = progress.rounded()
    result["peak_memory_bytes"] = peak_memory()
    result = folder.finish(result)
    remove_study(job, folder, progress)
    if comparison := result["comparison"]:
        progress.note(
            f"against the champion, version {comparison['champion_version']}: {comparison['reason']}"
        )
    progress.enter(
        "finished", f"{result['metric']} {format_score(result['score'])} on {len(data.test)} rows held out"
    )
    return result


def refit(task: SearchTask, outcome: SearchOutcome) -> Fitted:
    """Return the search's model, or fit the best trial's hyperparameters on all training rows."""
    if outcome.fitted is not None:
        return outcome.fitted
    return task.fit(outcome.params)


_NO_ENSEMBLE = "kept the best trial: no ensemble scored measurably better"


def _describe_step(chosen: Chosen) -> str:
    """Return what ``combine_trials`` does, for the log."""
    others = [f"trial {outcome.best.number} of {task.model.name}" for task, outcome in chosen[1:]]
    return f"fitting {', '.join(others)}" if others else "looking for an ensemble of trials that is better"


def combine_trials(
    spec: Spec, data: Prepared, chosen: Chosen, fitted: Fitted
) -> tuple[Fitted, dict[str, Any] | None]:
    """Return an ensemble of the best trials, and ``ensemble`` of ``result.json``.

    ``fitted`` is the model of the best trial. Of several chosen models, the mean is returned; of one, an
    ensemble of its trials, if it scores better.
    """
    task, outcome = chosen[0]
    if len(chosen) > 1:
        combined = average_boosters(fitted, chosen)
    else:
        combined = build_ensemble(task, outcome, fitted, spec.search.metric)
    if combined is None:
        return fitted, None
    record = combined.as_json()
    for name, model in (("before", fitted), ("after", combined.fitted)):
        record[name] = measure_size(model, data.test[:1]) | {"score": _holdout_score(spec, data, task, model)}
    return combined.fitted, record


def _holdout_score(spec: Spec, data: Prepared, task: SearchTask, model: Fitted) -> float:
    """Return the score of a model that is not published, which decides nothing."""
    predictions = predict_rows(lambda rows: model.predict(task.engine.place(rows)), data.test)
    return compute(spec.search.metric, data.test_target, predictions, data.test_roles.weights)


_NOT_COMPACTED = (
    "the model stays as large as it is: as an ensemble, or since its engine or few rows allow no smaller size"
)


def _compact_fitted(
    spec: Spec, data: Prepared, task: SearchTask, outcome: SearchOutcome, fitted: Fitted
) -> tuple[Fitted, dict[str, Any] | None]:
    """Return the smallest model that loses nothing measurable, and ``compact`` of ``result.json``."""
    score = _holdout_score(spec, data, task, fitted)
    smaller, compact = compact_model(task, fitted, outcome.params, spec.search.metric, data.test[:1])
    if compact is not None:
        compact["before"]["score"] = score
        compact["after"]["score"] = _holdout_score(spec, data, task, smaller)
    return smaller, compact


def examine_model(
    spec: Spec, data: Prepared, task: SearchTask, fitted: Fitted, served: NDArray[Any], result: dict[str, Any]
) -> tuple[Evidence, Diagnostics]:
    """Measure how reliable the score is and which features it depends on.

    ``served`` holds the predictions of the written files for the held-out rows. The function adds
    ``holdout.interval``, ``permutation`` and ``warnings`` to ``result``.
    """
    train, train_target, train_roles = sample_rows(data)
    evidence = Evidence(
        task=spec.task,
        metric=spec.search.metric,
        direction=task.direction,
        features=data.encoder.column_names,
        labels=data.labels,
        train=train,
        train_target=train_target,
        test=data.test,
        test_target=data.test_target,
        prediction=served,
        importances=np.array([result["importances"][name] for name in data.encoder.column_names]),
        cv_score=result["cv_score"],
        interval=None,
        seed=task.seed,
        train_weights=train_roles.weights,
        test_weights=data.test_roles.weights,
        units=data.test_roles.units(),
        grouped=data.test_roles.times is None,
        raw_names=[feature.name for feature in data.encoder.column_features],
    )
    trees = result["best_params"].get("n_estimators") or 1
    insight = diagnose(
        evidence,
        lambda rows: fitted.predict(task.engine.place(rows)),
        trees=int(trees) * max(1, task.n_classes if task.n_classes > 2 else 1),
    )
    result["holdout"]["interval"] = list(insight.interval) if insight.interval else None
    result["permutation"] = {name: mean for name, (mean, _) in insight.permutation.items()}
    result["warnings"] = [*data.warnings, *insight.warnings]
    return evidence, insight


def _write_insight(
    file: Path,
    result: Mapping[str, Any],
    data: Prepared,
    spec: Spec,
    outcome: SearchOutcome,
    evidence: Evidence,
    insight: Diagnostics,
) -> None:
    """Write ``insight.json``."""
    content = describe_insight(evidence, insight, data.encoder, spec.columns.sensitive)
    content["search"] = search_insight(result, spec.as_json(), [trial.as_json() for trial in outcome.trials])
    file.write_text(json.dumps(content, allow_nan=False), encoding="utf-8")


def write_report(
    file: Path, result: Mapping[str, Any], spec: Spec, outcome: SearchOutcome, insight: Diagnostics
) -> None:
    """Write ``report.html``."""
    trials = [trial.as_json() for trial in outcome.trials]
    file.write_text(render_report(result, spec.as_json(), trials, insight), encoding="utf-8")


_SCHEMA = 1

_LIBRARIES = ("optuna", "polars", "great-expectations")
"""Libraries that every run uses, with any engine."""


def _describe_run(
    job: TrainingJob, data: Prepared, chosen: Chosen, fitted: Fitted, scores: HoldoutScores
) -> dict[str, Any]:
    """Return ``result.json`` but for ``seconds``, ``artifacts`` and ``peak_memory_bytes``, known last."""
    spec, (task, outcome) = job.spec, chosen[0]
    libraries = dict.fromkeys(name for task, _ in chosen for name in task.engine.libraries)
    importances = fitted.importances().tolist()
    return {
        "schema": _SCHEMA,
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
        "tuned": sorted(outcome.best.params),
        "trial_params": dict(outcome.best.params),
        "n_trials": outcome.scored,
        "shortfall": outcome.shortfall,
        "folds": len(task.folds),
        "seed": task.seed,
        "labels": list(data.labels) if data.labels else None,
        "features": list(data.encoder.feature_names),
        "importances": dict(zip(data.encoder.column_names, importances, strict=True)),
        "holdout": {"metrics": scores.metrics, "confusion": scores.confusion, "residuals": scores.residuals},
        "data": describe_data(job, data),
        "warnings": list(data.warnings),
        "versions": versions((*libraries, *_LIBRARIES)),
        "finished": datetime.now(UTC).isoformat(timespec="milliseconds"),
    }


def describe_data(job: TrainingJob, data: Prepared) -> dict[str, Any]:
    """Return ``data`` of ``result.json``, by which later challengers identify new rows."""
    return {
        "rows": len(data.train) + len(data.test) + data.left_out,
        "train_rows": len(data.train),
        "holdout_rows": len(data.test),
        "hash": content_hash([file.path for file in job.files]),
        "objects": [file.as_json() for file in job.files],
        "since": _iso(job.request.since),
        "until": _iso(job.request.until),
        "split": split_settings(job.spec, data.since),
    }


def _iso(moment: datetime | None) -> str | None:
    return moment.astimezone(UTC).isoformat(timespec="seconds") if moment else None


_BUILDS = {
    "xgboost": ("xgboost", "xgboost-cpu"),
    "cuml": ("cuml-cu13", "cuml-cu12", "cuml"),
    "cupy": ("cupy-cuda13x", "cupy-cuda12x", "cupy"),
}
"""Library -> distributions that contain it."""


def versions(libraries: Iterable[str]) -> dict[str, str]:
    """Return the versions of Python, of DMLS and of the installed ``libraries``."""
    versions_of = {"python": platform.python_version()}
    for library in ("dmls", *libraries):
        for distribution in _BUILDS.get(library, (library,)):
            try:
                versions_of[library] = version(distribution)
                break
            except PackageNotFoundError:
                continue
    return versions_of
