from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from treelite.sklearn import import_model

from dmls_core.errors import UserError
from dmls_core.models import CATALOGUE
from dmls_core.models.metrics import compute
from dmls_core.serving.forest_size import check_size, forest_size
from dmls_core.training.depth_analysis import describe_size

LABELS = ("no", "yes")


def grown(metric, x, target, **options):
    kind = RandomForestRegressor if metric == "r2" else RandomForestClassifier
    return kind(20, random_state=0, **options).fit(x, target)


@pytest.fixture(params=["accuracy", "log_loss", "r2"])
def run(request, tmp_path):
    """A forest of full depth on data that need a depth of two, with its folder; and how it is scored."""
    metric = request.param
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 4)).astype(np.float32)
    target = np.where(x[:, 0] > 0, 2.0, -2.0) + np.where(x[:, 1] > 0, 1.0, -1.0) + rng.normal(size=3000)
    if metric != "r2":
        target = (target > 0).astype(int)
    model = import_model(grown(metric, x[:1500], target[:1500]))
    model.serialize(tmp_path / "checkpoint.tl")
    (tmp_path / "size.json").write_text(json.dumps(forest_size(model)))
    data = SimpleNamespace(
        train=x[:1500],
        train_target=target[:1500],
        test=x[1500:],
        test_target=target[1500:],
        labels=None if metric == "r2" else LABELS,
    )
    task = SimpleNamespace(
        model=CATALOGUE[f"random-forest-{'regressor' if metric == 'r2' else 'classifier'}"],
        direction="minimize" if metric == "log_loss" else "maximize",
        seed=0,
    )
    return task, data, metric, tmp_path


def test_a_depth_is_offered_that_loses_nothing_on_the_rows_held_out(run, monkeypatch):
    task, data, metric, folder = run
    size = describe_size(data, task, metric, folder, large=0)
    enough = size["enough"]
    depth = enough["max_depth"]
    assert (size["trees"], size["bytes"]) == (20, (folder / "checkpoint.tl").stat().st_size)
    assert 1 <= depth < size["depth"]
    assert enough["bytes"] < 0.5 * size["bytes"]
    assert enough["nodes"] == json.loads((folder / "size.json").read_text())["nodes_to_depth"][depth]
    assert (enough["rows"], enough["trees"]) == (1500, 20)
    worse = enough["whole_score"] - enough["score"]
    assert (-worse if metric == "log_loss" else worse) < 0.02
    # A forest that is grown no deeper does score so.
    forest = grown(metric, data.train, data.train_target, max_depth=depth)
    answers = forest.predict(data.test) if metric == "r2" else forest.predict_proba(data.test)
    assert compute(metric, data.test_target, answers) == pytest.approx(enough["score"], abs=0.03)
    monkeypatch.setenv("DMLS_SERVING_CHECKPOINT_BYTES", "1000")
    with pytest.raises(UserError, match=f"at depth {depth} .* they lose nothing that can be measured"):
        check_size("lab.iris", folder)


@pytest.mark.parametrize("run", ["accuracy"], indirect=True)
def test_for_a_small_model_no_depth_is_looked_for(run):
    task, data, metric, folder = run
    assert describe_size(data, task, metric, folder)["enough"] is None
    assert "enough" not in json.loads((folder / "size.json").read_text())
