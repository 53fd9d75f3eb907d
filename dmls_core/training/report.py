"""The run's report, and what it finds out that belongs into ``result.json`` too."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.evaluate import Evidence, Insight, examine
from dmls_core.evaluate.report import render_report
from dmls_core.models.engines import Fitted
from dmls_core.search import SearchOutcome, SearchTask
from dmls_core.spec import Spec
from dmls_core.training.prepare import Prepared


def look_closer(
    spec: Spec, data: Prepared, task: SearchTask, fitted: Fitted, served: NDArray[Any], result: dict[str, Any]
) -> Insight:
    """Find out how far the score can be trusted and what it rests on.

    Args:
        spec: the spec.
        data: what was trained on, and what was held out.
        task: what was searched.
        fitted: the model.
        served: its answers for the held-out rows, as they will be served.
        result: ``result.json``; ``holdout.interval``, ``permutation`` and ``warnings`` are put into it.
    """
    evidence = Evidence(
        task=spec.task,
        metric=spec.search.metric,
        direction=task.direction,
        features=data.encoder.feature_names,
        labels=data.labels,
        train=data.train,
        train_target=data.train_target,
        test=data.test,
        test_target=data.test_target,
        prediction=served,
        importances=np.array([result["importances"][name] for name in data.encoder.feature_names]),
        cv_score=result["cv_score"],
        interval=None,
        seed=task.seed,
    )
    trees = result["best_params"].get("n_estimators") or 1
    insight = examine(
        evidence,
        lambda rows: fitted.predict(task.engine.place(rows)),
        trees=int(trees) * max(1, task.n_classes if task.n_classes > 2 else 1),
    )
    result["holdout"]["interval"] = list(insight.interval) if insight.interval else None
    result["permutation"] = {name: mean for name, (mean, _) in insight.permutation.items()}
    result["warnings"] = [*data.warnings, *insight.warnings]
    return insight


def write_report(
    file: Path, result: Mapping[str, Any], spec: Spec, outcome: SearchOutcome, insight: Insight
) -> None:
    """Write ``report.html``."""
    trials = [trial.as_json() for trial in outcome.trials]
    file.write_text(render_report(result, spec.as_json(), trials, insight), encoding="utf-8")
