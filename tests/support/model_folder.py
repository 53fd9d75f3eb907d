"""Runs' ``model/`` folders for the tests of serving and tracking."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dmls_core.data.encoder import Encoder

LABELS = ("setosa", "versicolor", "virginica")
FEATURES = ("length", "width")


def write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content))


def toy_model_folder(
    folder: Path, *, checkpoint: bytes = b"trees", labels: Sequence[str] | None = LABELS, n_golden: int = 5
) -> Path:
    """Write a model folder whose checkpoint is no forest: for tests that need no Triton."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(7)
    columns = {name: [round(float(v), 3) for v in rng.normal(size=n_golden)] for name in FEATURES}
    kind = {"kind": "number", "fill": 0.0}
    target = {"name": "y", "kind": "number"} if labels is None else {"name": "y", "kind": "label"}
    if labels is not None:
        target["labels"] = list(labels)  # type: ignore[assignment]
    encoder = {"schema": 1, "features": [{"name": n, **kind} for n in FEATURES], "target": target}
    encoded = Encoder.from_json(encoder).transform(columns)
    if labels is None:
        expected = rng.normal(size=n_golden).astype(np.float32)
    else:
        expected = rng.dirichlet([1.0] * len(labels), size=n_golden).astype(np.float32)
    (folder / "checkpoint.tl").write_bytes(checkpoint)
    write_json(folder / "encoder.json", encoder)
    golden = {"schema": 1, "columns": columns, "encoded": encoded.tolist(), "expected": expected.tolist()}
    write_json(folder / "golden.json", golden | {"labels": labels and list(labels)})
    model = {
        "schema": 1,
        "task": "regression" if labels is None else "classification",
        "model": "random-forest-classifier",
        "n_features": len(FEATURES),
        "n_outputs": 1 if labels is None else len(labels),
        "labels": labels and list(labels),
        "features": list(FEATURES),
        "metric": "accuracy",
        "score": 0.9,
    }
    write_json(folder / "model.json", model)
    return folder
