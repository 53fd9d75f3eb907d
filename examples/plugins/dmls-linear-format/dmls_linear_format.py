"""Serving format for DMLS: linear models as JSON, run by NumPy in Triton's Python backend."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from dmls_core.serving.formats.base import ServingFormat, WrittenModel, module_source


class LinearFormat(ServingFormat):
    """Coefficients and intercepts; an engine of this format has ``Fitted.weights()``, which returns both."""

    name = "linear-json"
    backend = "python"
    files = ("weights.json",)
    predictor = "dmls_linear_predictor"

    def export(self, fitted: Any, folder: Path, *, threads: int) -> WrittenModel:
        """Write ``weights.json``, and predict from it."""
        coefficients, intercepts = fitted.weights()
        content = {"coefficients": coefficients.tolist(), "intercepts": intercepts.tolist()}
        (folder / "weights.json").write_text(json.dumps(content))
        return WrittenModel(self.load(folder, threads=threads))

    def inspect(self, folder: Path) -> dict[str, Any]:
        """Check that the weights are finite numbers of matching shapes."""
        content = json.loads((folder / "weights.json").read_bytes())
        coefficients = np.asarray(content["coefficients"], float)
        intercepts = np.asarray(content["intercepts"], float)
        if coefficients.ndim != 2 or intercepts.shape != coefficients.shape[1:]:
            raise ValueError(f"coefficients {coefficients.shape} do not fit intercepts {intercepts.shape}")
        if not (np.isfinite(coefficients).all() and np.isfinite(intercepts).all()):
            raise ValueError("a weight is not a finite number")
        features, outputs = coefficients.shape
        task = "regression" if outputs == 1 else "classification"
        return {"task": task, "features": features, "classes": outputs}

    def code(self) -> dict[str, str]:
        """Return what Triton's Python backend runs."""
        return {
            "model.py": module_source("dmls_linear_backend").read_text("utf-8"),
            "predictor.py": module_source(self.predictor).read_text("utf-8"),
        }
