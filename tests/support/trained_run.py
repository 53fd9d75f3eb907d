"""A finished run as the trainer leaves it, with a real forest: for tests of serving and tracking."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from pathlib import Path
from typing import Any

import numpy as np

from dmls_core.data.encoder import Encoder
from dmls_core.models import load_spec
from dmls_core.serving.formats.treelite import checkpoint
from dmls_core.serving.predict.card import write_card
from dmls_core.serving.repository.files import sha256

SPEC = b"""
model = "random-forest-classifier"
n_trials = 3
[columns]
target = "kind"
[n_estimators]
min = 5
max = 20
"""
COLOURS = ("blue", "green", "red")
LABELS = ("bad", "good", "so-so")


def user_rows(n_rows: int, seed: int = 0) -> dict[str, list[Any]]:
    """Raw values as a user has them: a number with gaps, whole numbers, texts with gaps."""
    rng = np.random.default_rng(seed)
    size: list[Any] = [round(float(v), 3) for v in rng.normal(size=n_rows)]
    colour: list[Any] = [COLOURS[i] for i in rng.integers(0, 3, n_rows)]
    for gap in range(0, n_rows, 7):
        size[gap] = None
        colour[-gap - 1] = None
    return {"size": size, "count": [int(v) for v in rng.integers(0, 9, n_rows)], "colour": colour}


def trained_run(
    folder: Path,
    *,
    team: str = "lab",
    job: str = "parts",
    run_key: str = "0123456789abcdef",
    regression: bool = False,
    binary: bool = False,
    n_trees: int = 10,
    n_trials: int = 3,
    seed: int = 0,
) -> dict[str, Any]:
    """Train a forest and write the run's folder; return ``result.json``."""
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
    from treelite.sklearn import import_model

    model = folder / "model"
    model.mkdir(parents=True)
    labels = LABELS[:2] if binary else LABELS
    features = [
        {"name": "size", "kind": "number", "fill": 0.0},
        {"name": "count", "kind": "number", "fill": 4.0},
        {"name": "colour", "kind": "category", "categories": list(COLOURS), "missing": -1.0, "unknown": -1.0},
    ]
    target = {"name": "kind", "kind": "number"} if regression else {"name": "kind", "kind": "label"}
    if not regression:
        target["labels"] = list(labels)  # type: ignore[assignment]
    encoder = Encoder.from_json({"schema": 1, "features": features, "target": target})
    x = encoder.transform(user_rows(400, seed))
    value = x[:, 0] + x[:, 1] / 4 + np.where(x[:, 2] == 1, 1.0, 0.0)
    if regression:
        forest: Any = RandomForestRegressor(n_trees, random_state=seed).fit(x, value)
    else:
        truth = np.digitize(value, [1.0] if binary else [0.5, 1.5])
        forest = RandomForestClassifier(n_trees, random_state=seed).fit(x, truth)
    served = checkpoint.export(import_model(forest), model / "checkpoint.tl")
    columns = user_rows(90, seed + 1)
    encoded = encoder.transform(columns)
    expected = checkpoint.predict(served, encoded).reshape(len(encoded), -1)
    names = None if regression else list(labels)
    metric, score = ("r2", 0.9) if regression else ("accuracy", 0.9)
    name = f"random-forest-{'regressor' if regression else 'classifier'}"
    _write(model / "encoder.json", encoder.as_json())
    golden = {"columns": columns, "encoded": encoded.tolist(), "expected": expected.tolist(), "labels": names}
    _write(model / "golden.json", {"schema": 1, **golden})
    about = {"schema": 1, "task": "regression" if regression else "classification", "model": name}
    about |= {"n_features": 3, "n_outputs": 1 if regression else len(labels), "labels": names}
    about |= {"sha256": {"checkpoint.tl": sha256(model / "checkpoint.tl")}}
    _write(model / "model.json", about | {"features": list(columns), "metric": metric, "score": score})
    for number in range(n_trials):
        _write(folder / f"trials/{number:05d}.json", _trial(number))
    (folder / "report.html").write_text("<title>report</title>")
    _write(folder / "validation/validation.json", {"schema": 1, "success": True})
    result = {
        "schema": 1,
        "status": "finished",
        "team": team,
        "job": job,
        "run_key": run_key,
        "spec_sha256": load_spec(SPEC).sha256,
        "model": name,
        "engine": "cpu",
        "metric": metric,
        "direction": "maximize",
        "score": score,
        "cv_score": 0.88,
        "best_params": {"n_estimators": n_trees, "max_depth": None, "criterion": "gini"},
        "n_trials": n_trials,
        "labels": names,
        "features": list(columns),
        "data": {"rows": 400, "hash": hashlib.sha256(b"data").hexdigest()},
        "holdout": {"metrics": {metric: score, "log_loss": 0.3}},
        "seconds": {"load": 0.1, "validate": 0.0, "search": 2.5, "refit": 0.2, "export": 0.1, "total": 3.0},
        "versions": {"treelite": importlib.metadata.version("treelite")},
        "artifacts": [],
    }
    _write(folder / "result.json", result)
    write_card(model, result, spec_json())
    return result


def spec_json() -> dict[str, Any]:
    return load_spec(SPEC).as_json()


def record_checkpoint(model: Path) -> None:
    """Record the hash of a changed checkpoint, as if the trainer had written it."""
    about = json.loads((model / "model.json").read_text())
    _write(model / "model.json", about | {"sha256": {"checkpoint.tl": sha256(model / "checkpoint.tl")}})


def _trial(number: int) -> dict[str, Any]:
    failed = number == 2
    return {
        "schema": 1,
        "number": number,
        "state": "failed" if failed else "complete",
        "engine": "cpu",
        "params": {"n_estimators": 5 + number},
        "value": None if failed else 0.8 + number / 1000,
        "values": [] if failed else [0.79, 0.8 + number / 1000, 0.81],
        "seconds": 0.5,
        "same_as": 0 if number == 1 else None,
        "message": "refused" if failed else "",
    }


def _write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
