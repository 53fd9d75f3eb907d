"""Predictions in a Python process, as in a model from MLflow: Treelite compared with nvForest on one thread.

Install nvForest first, in a folder of its own or next to DMLS, as ``docs/how-to/install.md`` describes.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from functools import partial
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # before nvForest is imported

import numpy as np
from lightgbm import LGBMClassifier
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from treelite.frontend import from_lightgbm
from treelite.sklearn import import_model

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from dmls_core.serving.formats.treelite.checkpoint import snap_thresholds
from dmls_core.serving.formats.treelite.gtil import nvforest_predictor, predict_float32
from tests.bench.report import Row, run

TURNS = 5


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Predict rows of scikit-learn's digits with two models, in turns."""
    x, y = load_digits(return_X_y=True)
    forest = RandomForestClassifier(100, random_state=0).fit(x, y)
    boosted = LGBMClassifier(n_estimators=50, random_state=0, verbose=-1).fit(x, y)
    models = {
        "forest, 100 trees": import_model(forest),
        "LightGBM, 500 trees": from_lightgbm(boosted.booster_),
    }
    rows: list[Row] = []
    for name, model in models.items():
        ours = partial(predict_float32, snap_thresholds(model), threads=1)
        theirs = nvforest_predictor(model)
        assert theirs is not None, "nvForest is not installed"
        for batch in (1, 32, 1024):
            part = np.ascontiguousarray(x[:batch], np.float32)
            count = max(2, arguments.rows // batch // TURNS)
            cpu = {ours: 0.0, theirs: 0.0}
            for _ in range(TURNS):
                for predict in cpu:
                    before = time.process_time()
                    for _ in range(count):
                        predict(part)
                    cpu[predict] += time.process_time() - before
            treelite_us, nvforest_us = (1e6 * seconds / count / TURNS for seconds in cpu.values())
            rows.append(
                {
                    "model": name,
                    "rows": batch,
                    "Treelite, CPU us": treelite_us,
                    "nvForest, CPU us": nvforest_us,
                    "ratio": treelite_us / nvforest_us,
                    "difference": f"{np.abs(ours(part) - theirs(part)).max():.0e}",
                }
            )
    return rows


if __name__ == "__main__":
    run(__doc__, measure, ("--rows", 20_000, "rows predicted for each figure"))
