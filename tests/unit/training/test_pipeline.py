"""What a run keeps in memory between its phases."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from dmls_core.search.objective import Objective
from dmls_core.training import TrainRequest, pipeline, train

SPEC = """model = {model}
n_trials = 4
[columns]
target = "y"
"""


@pytest.mark.parametrize(
    "model", ['["random-forest-classifier", "xgboost-classifier"]', '"lightgbm-classifier"']
)
def test_bins_folds_and_forests_of_the_search_are_released_before_the_refit(model, tmp_path, monkeypatch):
    left: list[Objective] = []

    def refit(*arguments):
        left.extend(one for one in gc.get_objects() if isinstance(one, Objective))
        return kept(*arguments)

    kept = pipeline.refit
    monkeypatch.setattr(pipeline, "refit", refit)
    rows = np.random.default_rng(0).normal(size=(120, 3)).round(3)
    lines = [",".join(map(str, [*row, "up" if row.sum() > 0 else "down"])) for row in rows]
    (tmp_path / "data.csv").write_text("\n".join(["a,b,c,y", *lines]))
    (tmp_path / "spec.toml").write_text(SPEC.format(model=model))

    train(
        TrainRequest(f"{tmp_path}/spec.toml", (f"{tmp_path}/data.csv",), f"{tmp_path}/out"),
        progress=lambda _: None,
    )

    assert left == []
