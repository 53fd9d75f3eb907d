"""A small Treelite model of each kind that is served: forests, boosted trees and an ensemble."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dmls_core.models import CATALOGUE
from dmls_core.models.catalogue import load_engine
from dmls_core.models.engines import FittedEnsemble

if TYPE_CHECKING:
    import treelite

TREE_MODELS = (
    *("random-forest-classifier", "random-forest-regressor", "extra-trees-regressor"),
    *("lightgbm-classifier", "lightgbm-regressor", "xgboost-classifier", "xgboost-regressor"),
    *("catboost-classifier", "catboost-regressor", "ensemble-classifier", "ensemble-regressor"),
)


def tree_model(name: str, rows: np.ndarray) -> treelite.Model:
    """Return a model of 3 classes, or of a value; the last column of ``rows`` has categories."""
    family, _, task = name.rpartition("-")
    rng = np.random.default_rng(0)
    classes = 3 if task == "classifier" else 0
    target = rng.integers(0, 3, len(rows)).astype(np.int32) if classes else rng.normal(size=len(rows))
    fitted = []
    for member in ("lightgbm", "xgboost") if family == "ensemble" else (family,):
        definition = CATALOGUE[f"{member}-{task}"]
        engine = load_engine("cpu", definition.name)
        if member in ("lightgbm", "xgboost"):
            engine.categories = (rows.shape[1] - 1,)
        options = {"n_classes": classes, "seed": 0, "threads": 1}
        fitted.append(engine.fit(definition, {"n_estimators": 4}, rows, target, **options))
    return (FittedEnsemble(fitted, [0.6, 0.4]) if len(fitted) > 1 else fitted[0]).to_treelite()
