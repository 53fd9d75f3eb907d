from __future__ import annotations

import json

import numpy as np
import pytest

from dmls_core.serving.formats.treelite import checkpoint, in_process
from dmls_core.serving.formats.treelite.in_process import LARGEST_ROWS, PROOF_ROWS, open_model
from tests.support.trained_run import trained_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    base = tmp_path_factory.mktemp("runs")
    kinds = {"classes": {}, "binary": {"binary": True}, "regression": {"regression": True}}
    for kind, options in kinds.items():
        trained_run(base / kind, **options)
    return base


def golden_of(folder):
    golden = json.loads((folder / "golden.json").read_text())
    rows = np.asarray(golden["encoded"], np.float32)
    model = checkpoint.load(folder / "checkpoint.tl")
    return rows, checkpoint.predict(model, rows).reshape(len(rows), -1)


@pytest.mark.parametrize("kind", ["classes", "binary", "regression"])
def test_it_predicts_as_the_forest_in_triton_bit_for_bit(runs, kind):
    folder = runs / kind / "model"
    rows, expected = golden_of(folder)
    own = open_model(folder, 3)
    for start, stop in ((0, 1), (1, 33), (0, 90)):
        part = np.ascontiguousarray(rows[start:stop])
        assert np.array_equal(own.predict(part, expected.shape[1]), expected[start:stop])


def test_the_probability_of_the_second_class_alone_is_completed(tmp_path):
    import treelite
    import xgboost

    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 3)).astype(np.float32)
    model = xgboost.XGBClassifier(n_estimators=5, max_depth=3).fit(rows, rng.integers(0, 2, 200))
    served = checkpoint.export(
        treelite.frontend.from_xgboost(model.get_booster()), tmp_path / "checkpoint.tl"
    )
    own = open_model(tmp_path, 3)
    assert np.array_equal(own.predict(rows, 2), checkpoint.predict(served, rows))


def test_it_answers_few_rows_once_it_has_agreed_with_triton(runs):
    folder = runs / "classes" / "model"
    rows, expected = golden_of(folder)
    own = open_model(folder, 3)
    assert own.agrees(rows[: PROOF_ROWS - 1], expected[: PROOF_ROWS - 1])
    assert not own.answers(1)
    assert own.agrees(rows[:8], expected[:8])
    assert own.answers(1)
    assert own.answers(LARGEST_ROWS)
    assert not own.answers(LARGEST_ROWS + 1)
    assert own.agrees(rows, expected + 1), "once proven, it is not compared any more"


def test_a_last_bit_is_a_difference(runs):
    folder = runs / "classes" / "model"
    rows, expected = golden_of(folder)
    own = open_model(folder, 3)
    expected[7, 0] = np.nextafter(expected[7, 0], np.float32(2))
    assert not own.agrees(rows, expected)


def test_what_cannot_be_read_is_left_to_triton(runs, tmp_path, monkeypatch):
    path = runs / "classes" / "model" / "checkpoint.tl"
    assert open_model(tmp_path, 3) is None, "the repository is in S3"
    assert open_model(path.parent, 4) is None
    (tmp_path / "checkpoint.tl").write_bytes(b"no forest")
    assert open_model(tmp_path, 3) is None
    with monkeypatch.context() as patch:
        patch.setattr(in_process, "LARGEST_FILE", path.stat().st_size - 1)
        assert open_model(path.parent, 3) is None
    monkeypatch.setattr(in_process.importlib.util, "find_spec", lambda _: None)
    assert open_model(path.parent, 3) is None
