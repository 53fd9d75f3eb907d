from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import treelite
from treelite.sklearn import import_model

from dmls_core import sandbox
from dmls_core.errors import ServingError
from dmls_core.sandbox import Limits, SandboxError, Worker
from dmls_core.serving.formats.model_check import check_model, inspect_model
from dmls_core.serving.formats.treelite import checkpoint
from tests.support.damage import damaged
from tests.support.trained_run import record_checkpoint, trained_run
from tests.support.tree_models import TREE_MODELS, tree_model


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    trained_run(folder / "run")
    return folder / "run" / "model"


@pytest.fixture
def folder(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "model")


def describe(folder, **changes):
    about = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(about | changes))


@pytest.fixture
def in_this_process(monkeypatch):
    monkeypatch.setattr(sandbox, "run", lambda function, *args, **_: function(*args))


def test_a_model_as_the_trainer_wrote_it_passes(folder):
    check_model(folder, "lab.parts")


def test_a_changed_byte_is_found_by_the_hash(folder):
    path = folder / "checkpoint.tl"
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)
    with pytest.raises(
        ServingError, match=r"checkpoint\.tl of lab\.parts is damaged: its SHA-256 is \w+, model"
    ):
        check_model(folder, "lab.parts")


def test_a_file_that_never_was_a_checkpoint_is_found_in_the_child_process(folder):
    (folder / "checkpoint.tl").write_bytes((folder / "checkpoint.tl").read_bytes()[:300])
    record_checkpoint(folder)
    with pytest.raises(ServingError, match=r"is damaged; Triton did not load it: "):
        check_model(folder, "lab.parts")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_features": 4}, "features: found 3, expected 4"),
        ({"n_outputs": 2}, "classes: found 3, expected 2"),
        (
            {"task": "regression", "n_outputs": 1},
            "task: found classification, expected regression; classes: found 3, expected 1",
        ),
    ],
)
@pytest.mark.usefixtures("in_this_process")
def test_another_model_than_described(folder, changes, message):
    describe(folder, **changes)
    with pytest.raises(ServingError, match=message):
        check_model(folder, "lab.parts")


@pytest.mark.usefixtures("in_this_process")
def test_a_model_of_an_earlier_release_has_no_hash(folder):
    about = json.loads((folder / "model.json").read_text())
    del about["sha256"]
    (folder / "model.json").write_text(json.dumps(about))
    check_model(folder, "lab.parts")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "it is not JSON"),
        ("[]", "expected an object, found list"),
        ("{}", "found task None, n_features None, n_outputs None; expected task"),
        ('{"task": "regression", "n_features": true, "n_outputs": 1}', "n_features True"),
    ],
)
def test_a_damaged_model_json_is_named(folder, text, message):
    (folder / "model.json").write_text(text)
    with pytest.raises(ServingError, match=rf"model\.json of lab\.parts is damaged: .*{message}"):
        check_model(folder, "lab.parts")


def test_missing_files_are_named(folder):
    (folder / "checkpoint.tl").unlink()
    with pytest.raises(ServingError, match=r"cannot read checkpoint\.tl of lab\.parts"):
        check_model(folder, "lab.parts")
    (folder / "model.json").unlink()
    with pytest.raises(ServingError, match=r"cannot read model\.json of lab\.parts"):
        check_model(folder, "lab.parts")


LISTS = ("leaf_vector_begin", "leaf_vector_end", "category_list_begin", "category_list_end")


def boosted(kind):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3)).astype(np.float32)
    x[:, 0] = rng.integers(0, 9, 300)
    if kind.startswith("xgboost"):
        import xgboost

        classes = 3 if kind == "xgboost three" else 2
        model = xgboost.XGBClassifier(n_estimators=4, max_depth=3).fit(x, rng.integers(0, classes, 300))
        return treelite.frontend.from_xgboost(model.get_booster())
    import lightgbm

    y = x[:, 0] % 2 if kind == "lightgbm categorical" else rng.integers(0, 3, 300)
    options = {"categorical_feature": [0]} if kind == "lightgbm categorical" else {}
    model = lightgbm.LGBMClassifier(n_estimators=4, verbose=-1, min_child_samples=5).fit(x, y, **options)
    return treelite.frontend.from_lightgbm(model.booster_)


@pytest.mark.parametrize("kind", ["xgboost two", "xgboost three", "lightgbm three", "lightgbm categorical"])
def test_boosted_trees_pass(tmp_path, kind):
    boosted(kind).serialize(tmp_path / "checkpoint.tl")
    classes = 3 if "three" in kind else 2
    assert inspect_model("treelite", str(tmp_path)) == {
        "task": "classification",
        "features": 3,
        "classes": classes,
    }


@pytest.mark.parametrize("name", TREE_MODELS)
def test_a_changed_list_of_any_node_is_found(tmp_path, name):
    """FIL reads the lists of nodes as they stand: a wrong one ends the server."""
    rng = np.random.default_rng(1)
    rows = np.column_stack([rng.normal(size=(200, 2)), rng.integers(0, 40, 200)]).astype(np.float32)
    model = tree_model(name, rows)
    model.serialize(tmp_path / "checkpoint.tl")
    assert inspect_model("treelite", str(tmp_path))["features"] == 3
    tree = model.get_tree_accessor(1)
    fields = {name: tree.get_field(name).copy() for name in ("cleft", "node_type", *LISTS, "category_list")}
    inner = fields["cleft"] != -1
    changes = [
        (field, nodes[at], value)
        for field in LISTS
        for nodes in (np.flatnonzero(inner), np.flatnonzero(~inner))
        for at in (0, -1)
        for value in (1 + fields[field][nodes[at]], fields[field][nodes[at]] ^ np.uint64(1 << 40))
        if "category" not in field or fields["node_type"][nodes[at]] != 2
    ]
    changes += [("category_list", 0, 2**32 - 1)] if len(fields["category_list"]) else []
    for field, node, value in changes:
        changed = fields[field].copy()
        changed[node] = value
        tree.set_field(field, changed)
        model.serialize(tmp_path / "checkpoint.tl")
        tree.set_field(field, fields[field])
        with pytest.raises(ServingError, match="tree 1 has a (leaf_vector|category)"):
            inspect_model("treelite", str(tmp_path))


def test_two_targets_are_found(tmp_path):
    from sklearn.ensemble import RandomForestRegressor

    rng = np.random.default_rng(0)
    forest = RandomForestRegressor(3).fit(rng.normal(size=(50, 3)), rng.normal(size=(50, 2)))
    import_model(forest).serialize(tmp_path / "checkpoint.tl")
    with pytest.raises(ServingError, match=r"targets: found 2, expected 1"):
        inspect_model("treelite", str(tmp_path))


@pytest.mark.parametrize(
    ("field", "position", "value", "problem"),
    [
        ("cleft", 0, 10**6, "has nodes without children"),
        ("cleft", 0, 0, "has nodes without children"),
        ("cright", 0, None, "has nodes with two parents"),
        ("split_index", 0, 3, "tests a feature outside of the 3"),
        ("cmp", 0, 9, "has an unknown comparison"),
        ("node_type", 0, 7, "has nodes of an unknown type"),
        ("leaf_vector_end", -1, 10**9, "has a leaf_vector that ends outside of it"),
    ],
)
def test_a_part_that_points_outside_is_found(trained, tmp_path, field, position, value, problem):
    model = checkpoint.load(trained / "checkpoint.tl")
    tree = model.get_tree_accessor(4)
    values = tree.get_field(field).copy()
    values[position] = tree.get_field("cleft")[position] if value is None else value
    tree.set_field(field, values)
    model.serialize(tmp_path / "checkpoint.tl")
    with pytest.raises(ServingError, match=f"tree 4 {problem}"):
        inspect_model("treelite", str(tmp_path))


@pytest.mark.parametrize("files", [8, pytest.param(80, marks=pytest.mark.nightly("each may end a child"))])
def test_damage_never_ends_the_caller(trained, tmp_path, files):
    """Without a recorded hash, each damaged file is refused, or is a whole model after all."""
    path, content = tmp_path / "checkpoint.tl", (trained / "checkpoint.tl").read_bytes()
    outcomes = set()
    with Worker(Limits(memory=1 << 30, seconds=4, cpu_seconds=4)) as worker:
        for number in range(files):
            kind, changed = damaged(content, number)
            path.write_bytes(changed)
            try:
                worker.call(inspect_model, "treelite", str(path.parent))
                outcomes.add("whole")
            except (ServingError, SandboxError):
                outcomes.add(f"{kind} refused")
    assert {"truncated refused", "swapped sections refused", "zeroed range refused"} <= outcomes
