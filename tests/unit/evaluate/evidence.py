"""A run's evidence and its report, made up for the tests of the report."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.evaluate import Diagnostics, Evidence, diagnose, score_holdout
from dmls_core.evaluate.report import render_report

HOSTILE = "<img src=x onerror=alert('x')><a href='https://evil.example'>x</a></script>\"&"


def evidence(x: NDArray, y: NDArray, prediction: NDArray, *, rows: int, **changes: Any) -> Evidence:
    """Return what is known of a model whose first ``rows`` rows were held out; ``prediction`` is of those."""
    classes = prediction.shape[1] if prediction.ndim == 2 else 0
    given: dict[str, Any] = {
        "task": "classification" if classes else "regression",
        "metric": "accuracy" if classes else "r2",
        "direction": "maximize",
        "features": [f"f{position}" for position in range(x.shape[1])],
        "labels": [f"class {code}" for code in range(classes)] or None,
        "train": x[rows:],
        "train_target": y[rows:],
        "test": x[:rows],
        "test_target": y[:rows],
        "prediction": prediction,
        "importances": np.full(x.shape[1], 1 / x.shape[1]),
        "cv_score": 0.9,
        "interval": None,
        "seed": 0,
    }
    return Evidence(**given | changes)


class Case:
    """A made-up run of a linear model, as large as asked for."""

    def __init__(
        self, classes: int, *, features: int = 5, rows: int = 200, names: list[str] | None = None
    ) -> None:
        draw = np.random.default_rng(classes)
        self.x = draw.normal(size=(2 * rows, features)).astype(np.float32)
        self.weights = draw.normal(size=(features, max(1, classes))) / np.sqrt(features)
        raw = self.x @ self.weights + draw.normal(size=(2 * rows, max(1, classes))) * 0.2
        self.classes = classes
        self.y = raw.argmax(axis=1) if classes else raw[:, 0]
        self.labels = [f"class {code}" for code in range(classes)] or None
        if names and self.labels:
            self.labels[:2] = names[:2]
        self.names = [*(names or []), *(f"f{position}" for position in range(features))][:features]
        found = self.predict(self.x[:rows])
        task = "classification" if classes else "regression"
        self.metric = "accuracy" if classes else "r2"
        self.scores = score_holdout(task, self.metric, self.y[:rows], found)
        self.evidence = evidence(self.x, self.y, found, rows=rows, features=self.names, labels=self.labels)

    def predict(self, rows: NDArray) -> NDArray:
        raw = rows @ self.weights
        if not self.classes:
            return raw[:, 0]
        shares = np.exp(3 * raw)
        return shares / shares.sum(axis=1, keepdims=True)

    def result(self, **changes: Any) -> dict[str, Any]:
        shares = np.abs(self.weights).sum(axis=1)
        shares /= shares.sum()
        return {
            "team": "lab",
            "job": "iris",
            "run_key": "0123456789abcdef",
            "model": "random-forest-classifier",
            "engine": "cpu",
            "metric": self.metric,
            "direction": "maximize",
            "score": self.scores.score,
            "cv_score": 0.9,
            "n_trials": 2,
            "labels": self.labels,
            "features": self.names,
            "importances": dict(zip(self.names, shares.tolist(), strict=True)),
            "holdout": {
                "metrics": self.scores.metrics,
                "confusion": self.scores.confusion,
                "residuals": self.scores.residuals,
            },
            "best_params": {"criterion": "gini", "max_depth": None},
            "seconds": {"search": 1.5, "total": 3.25},
            "data": {
                "rows": len(self.x),
                "train_rows": len(self.evidence.train),
                "holdout_rows": len(self.evidence.test),
                "hash": "ab" * 32,
            },
            "versions": {"python": "3.11.7"},
            "warnings": [],
        } | changes

    def page(self, trials: list[dict[str, Any]], **changes: Any) -> str:
        return render_report(self.result(**changes), spec(), trials, self.diagnostics())

    def diagnostics(self) -> Diagnostics:
        return diagnose(self.evidence, self.predict, trees=10)


SPACES = {
    "n_estimators": {"min": 50, "max": 500, "step": None, "log": False},
    "learning_rate": {"min": 0.001, "max": 0.3, "step": None, "log": True},
    "criterion": {"values": ["gini", HOSTILE]},
    "max_depth": {"values": ["none"]},
}


def spec(models: tuple[str, ...] = ("random-forest-classifier",)) -> dict[str, Any]:
    return {
        "models": [{"name": name, "hyperparameters": SPACES} for name in models],
        "n_trials": 20,
        "columns": {"target": "species"},
        "search": {"strategy": "auto", "metric": "accuracy", "timeout": None, "folds": 3, "seed": 0},
        "evaluation": {"holdout": 0.2, "split": "stratified"},
        "resources": {"engine": "auto"},
        "deploy": {"mode": "manual", "min_metric": None},
    }


def trial(number: int, value: float | None, **changes: Any) -> dict[str, Any]:
    return {
        "number": number,
        "state": "failed" if value is None else "complete",
        "value": value,
        "values": [] if value is None else [value - 0.01, value + 0.01],
        "params": {
            "n_estimators": 50 + 37 * number % 450,
            "learning_rate": 0.3 / (1 + number),
            "criterion": HOSTILE if number % 2 else "gini",
        },
        "seconds": 1.5,
        "same_as": None,
        "message": "",
        "surface": None,
    } | changes


def surface(value: float) -> dict[str, Any]:
    return {
        "axes": {"n_estimators": [50, 100, 200], "max_depth": [4, 8, "none"]},
        "values": [value - 0.01 * step for step in range(9)],
    }
