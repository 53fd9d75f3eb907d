from __future__ import annotations

import json

import numpy as np
import pytest
import treelite
from sklearn.ensemble import RandomForestClassifier
from treelite.sklearn import import_model

from dmls_core.errors import ServingError, UserError
from dmls_core.serving.formats.model_check import check_size
from dmls_core.serving.formats.treelite.forest_size import forest_size


@pytest.fixture(scope="module")
def forest():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 5))
    return RandomForestClassifier(8, random_state=0).fit(x, rng.integers(0, 3, 400))


@pytest.fixture
def folder(forest, tmp_path):
    model = import_model(forest)
    model.serialize(tmp_path / "checkpoint.tl")
    (tmp_path / "size.json").write_text(json.dumps(forest_size(model)))
    (tmp_path / "model.json").write_text("{}")  # as those of the first releases, it names no format
    return tmp_path


def test_nodes_are_counted_by_depth(forest, folder):
    about = json.loads((folder / "size.json").read_text())
    trees = [estimator.tree_ for estimator in forest.estimators_]
    assert about["trees"] == 8
    assert about["nodes_to_depth"][0] == 8
    assert about["nodes_to_depth"][-1] == sum(tree.node_count for tree in trees)
    assert len(about["nodes_to_depth"]) - 1 == max(tree.max_depth for tree in trees)


def test_a_forest_within_the_limit_passes(folder):
    check_size(folder, "lab.iris")


def test_a_larger_forest_is_rejected_with_a_depth_that_fits(forest, folder, monkeypatch):
    size = (folder / "checkpoint.tl").stat().st_size
    monkeypatch.setenv("DMLS_SERVING_CHECKPOINT_BYTES", str(size // 2))
    with pytest.raises(UserError) as error:
        check_size(folder, "lab.iris")
    text = str(error.value)
    nodes = json.loads((folder / "size.json").read_text())["nodes_to_depth"]
    depth = max(d for d, count in enumerate(nodes) if count <= nodes[-1] / 2)
    assert "lab.iris is too large to be served" in text
    assert "DMLS_SERVING_CHECKPOINT_BYTES" in text
    assert f"cut at depth {depth} they have {nodes[depth]:,}" in text
    # The depth that is offered does fit.
    cut = RandomForestClassifier(8, random_state=0, max_depth=depth)
    rng = np.random.default_rng(0)
    cut.fit(rng.normal(size=(400, 5)), rng.integers(0, 3, 400))
    import_model(cut).serialize(folder / "cut.tl")
    assert (folder / "cut.tl").stat().st_size <= 1.1 * size / 2
    assert treelite.Model.deserialize(folder / "cut.tl").num_tree == 8


def test_the_limit_applies_without_size_json(folder, monkeypatch):
    (folder / "size.json").unlink()
    monkeypatch.setenv("DMLS_SERVING_CHECKPOINT_BYTES", "1000")
    with pytest.raises(UserError, match="give max_depth or n_estimators a smaller max"):
        check_size(folder, "lab.iris")


def test_a_run_without_a_checkpoint_is_rejected(tmp_path):
    (tmp_path / "model.json").write_text("{}")
    with pytest.raises(ServingError, match="cannot read the files of lab.iris"):
        check_size(tmp_path, "lab.iris")
