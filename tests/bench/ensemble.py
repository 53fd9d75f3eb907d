"""What ``[search] ensemble`` gains, and what it costs: the best trial's model against the ensemble.

Run it with ``python tests/bench/ensemble.py``. For each data set, family and seed, one search in the default
space is followed by both models; ``single`` and ``ensemble`` are their mean scores on rows that neither
search nor choice has seen, ``gain`` is the mean paired difference with its standard error. ``loss`` is the
mean log loss, or the root mean squared error, of the ensemble as a share of the single model's. ``taken``:
searches in which an ensemble was chosen; where none was, the model stays. ``CPU s``: of the search, and of
the ensemble. ``ms``: the median of a prediction of one row in this process. ``classes``, ``values`` and
``friedman`` are made by scikit-learn's generators.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from statistics import mean, stdev
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from sklearn import datasets
from sklearn.model_selection import train_test_split

from dmls_core.evaluate import scorer
from dmls_core.models import CATALOGUE, METRICS
from dmls_core.models.catalogue import load_engine
from dmls_core.search.candidate import make_candidate
from dmls_core.search.optimize import search
from dmls_core.search.task import SearchTask, Space, make_folds
from dmls_core.training.compact import measure_size
from dmls_core.training.ensemble import build_ensemble
from tests.bench.report import Row, run
from tests.bench.search_boosted import space_of

HELD_OUT = 0.3


def load(name: str, rows: int) -> tuple[Any, Any, int]:
    """Return features, target and the number of classes."""
    made = {"n_samples": rows, "n_features": 20, "n_informative": 8, "random_state": 0}
    if name == "classes":
        x, y = datasets.make_classification(**made, n_classes=3, flip_y=0.1)
    elif name == "values":
        x, y = datasets.make_regression(**made, noise=20)
    elif name == "friedman":
        x, y = datasets.make_friedman1(rows, noise=1.0, random_state=0)
    else:
        x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    classes = 0 if y.dtype.kind == "f" else len(np.unique(y))
    return x.astype(np.float32), y.astype(np.int32 if classes else np.float64), classes


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Measure each family on each data set."""
    rows = []
    for name in arguments.data.split(","):
        for family in arguments.families.split(","):
            found = [measure_seed(name, family, seed, arguments) for seed in range(arguments.seeds)]
            rows.append(summary(name, family, found))
            print(rows[-1], file=sys.stderr, flush=True)
    return rows


def measure_seed(name: str, family: str, seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Search once, and compare both models."""
    features, target, classes = load(name, arguments.rows)
    x, rest, y, truth = train_test_split(
        features, target, test_size=HELD_OUT, random_state=seed, stratify=target if classes else None
    )
    model = CATALOGUE[f"{family}-{'classifier' if classes else 'regressor'}"]
    metric = arguments.metric if classes else "r2"
    task = SearchTask(
        model=model,
        engine=load_engine("cpu", model.name),
        features=x,
        target=y,
        truth=y,
        n_classes=classes,
        folds=make_folds(y, 3, n_classes=classes, seed=seed),
        score=scorer(metric),
        direction=METRICS[metric].direction,
        seed=seed,
        threads=arguments.threads,
    )
    started = time.process_time()
    candidate = make_candidate("auto", task, Space.of(space_of(model)), arguments.trials)
    _, outcome = search([candidate], arguments.trials)
    single = outcome.fitted or task.fit(outcome.params)
    searched, started = time.process_time() - started, time.process_time()
    ensemble = build_ensemble(task, outcome, single, metric)
    built = time.process_time() - started

    def about(fitted: Any) -> dict[str, Any]:
        size = measure_size(fitted, rest[:1])
        found = fitted.predict(rest)
        loss = METRICS["log_loss" if classes else "rmse"].compute(truth, found, None)
        return {"score": scorer(metric)(truth, found, None), "loss": loss, **size}

    before = about(single)
    after = about(ensemble.fitted) if ensemble else before
    return {
        "before": before,
        "after": after,
        "searched": searched,
        "built": built,
        "members": len(ensemble.members) if ensemble else 1,
        "sign": task.sign,
    }


def summary(name: str, family: str, found: list[dict[str, Any]]) -> Row:
    """Return one line of the table."""

    def means(key: str) -> tuple[float, float]:
        return mean(one["before"][key] for one in found), mean(one["after"][key] for one in found)

    gains = [one["sign"] * (one["after"]["score"] - one["before"]["score"]) for one in found]
    error = stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else 0.0
    score, milliseconds, kilobytes = means("score"), means("latency_ms"), means("bytes")
    return {
        "data": name,
        "model": family,
        "taken": f"{sum(one['members'] > 1 for one in found)}/{len(found)}",
        "members": mean(one["members"] for one in found),
        "single": f"{score[0]:.4f}",
        "ensemble": f"{score[1]:.4f}",
        "gain": f"{mean(gains):+.4f} ± {error:.4f}",
        "loss": f"{mean(one['after']['loss'] / one['before']['loss'] for one in found):.3f}",
        "CPU s": f"{mean(one['searched'] for one in found):.1f} + {mean(one['built'] for one in found):.1f}",
        "ms": f"{milliseconds[0]:.3f} > {milliseconds[1]:.3f}",
        "KB": f"{kilobytes[0] / 1e3:,.0f} > {kilobytes[1] / 1e3:,.0f}",
    }


if __name__ == "__main__":
    run(
        __doc__,
        measure,
        ("--data", "wine,breast_cancer,digits,diabetes,classes,values,friedman", "data sets"),
        ("--families", "random-forest,extra-trees,xgboost,lightgbm", "families of models"),
        ("--metric", "accuracy", "metric of the search of classifiers"),
        ("--rows", 2_000, "rows of the made data sets"),
        ("--trials", 20, "trials of each search"),
        ("--seeds", 5, "splits and searches"),
        ("--threads", 1, "threads of each fit"),
    )
