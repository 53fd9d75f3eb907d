"""What ``[deploy] compact`` saves, and what it costs: whole models and compacted ones on fresh rows.

Run it with ``python tests/bench/compact.py``. Each model is fitted with the trees given and otherwise the
defaults; the score is that of rows that neither the fit nor the choice of the size has seen. ``seconds`` are
CPU seconds, of the fit and of the compaction. ``ms`` is the median of a prediction of one row in this
process. ``made`` data sets are scikit-learn's ``make_classification`` and ``make_regression``.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from dmls_core.models import CATALOGUE, METRICS
from dmls_core.models.catalogue import load_engine
from dmls_core.models.metrics import DEFAULT_METRICS, scorer
from dmls_core.search.task import SearchTask, make_folds
from dmls_core.training.compact import compact_model
from tests.bench.report import Row, run

HELD_OUT = 0.3
FAMILIES = ("random-forest", "extra-trees", "xgboost", "lightgbm")


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Compact each family of models on each data set."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    return [
        compacted(name, family, features, target, arguments)
        for name, (features, target) in data_sets(arguments.rows).items()
        for family in FAMILIES
    ]


def data_sets(rows: int) -> dict[str, tuple[Any, Any]]:
    """Return name -> features and target; a float target is a regression's."""
    from sklearn import datasets

    made = {"n_samples": rows, "n_features": 20, "n_informative": 8, "random_state": 0}
    return {
        "breast cancer": datasets.load_breast_cancer(return_X_y=True),
        "digits": datasets.load_digits(return_X_y=True),
        "diabetes": datasets.load_diabetes(return_X_y=True),
        "made classes": datasets.make_classification(**made, flip_y=0.1),
        "made values": datasets.make_regression(**made, noise=20),
    }


def compacted(name: str, family: str, features: Any, target: Any, arguments: argparse.Namespace) -> Row:
    """Fit and compact one model; return its sizes and scores."""
    classes = 0 if target.dtype.kind == "f" else int(target.max()) + 1
    order = np.random.default_rng(0).permutation(len(target))
    cut = round(HELD_OUT * len(target))
    features, target = features.astype(np.float32)[order], target[order]
    target = target.astype(np.int32 if classes else np.float64)
    model = CATALOGUE[f"{family}-{'classifier' if classes else 'regressor'}"]
    metric, params = DEFAULT_METRICS[model.task], {"n_estimators": arguments.trees}
    task = SearchTask(
        model=model,
        engine=load_engine("cpu", model.name),
        features=features[cut:],
        target=target[cut:],
        truth=target[cut:],
        n_classes=classes,
        folds=make_folds(target[cut:], 3, n_classes=classes, seed=0),
        score=scorer(metric),
        direction=METRICS[metric].direction,
        seed=0,
        threads=arguments.threads,
    )
    started = time.process_time()
    fitted = task.engine.fit(
        model, params, task.features, task.target, n_classes=classes, seed=0, threads=arguments.threads
    )
    fit = time.process_time() - started

    def score(found: Any) -> float:
        return METRICS[metric].compute(target[:cut], found.predict(features[:cut]))

    whole, started = score(fitted), time.process_time()
    smaller, about = compact_model(task, fitted, params, metric, features[:1])
    spent = time.process_time() - started
    if about is None:
        raise SystemExit(f"{model.name} cannot be compacted on {name}")
    before, after = about["before"], about["after"]
    return {
        "data": name,
        "model": family,
        "rows": len(task.truth),
        **{key: f"{before[key]:,} > {after[key]:,}" for key in ("trees", "depth", "nodes")},
        "KB": f"{before['bytes'] / 1e3:,.0f} > {after['bytes'] / 1e3:,.0f}",
        "ms": f"{before['latency_ms']:.3f} > {after['latency_ms']:.3f}",
        "metric": metric,
        "score": f"{whole:.4f} > {score(smaller):.4f}",
        "seconds": f"{fit:.1f}, {spent:.1f}",
    }


if __name__ == "__main__":
    run(
        __doc__,
        measure,
        ("--rows", 10_000, "rows of the made data sets"),
        ("--trees", 300, "trees, or boosting rounds, of each model"),
        ("--threads", 2, "threads of each fit"),
    )
