"""Native categorical splits are exact in the checkpoint and in shared bins, also for unseen categories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmls_core.data.table.table import Table, TableColumn, encode_table, fit_encoder
from dmls_core.models import CATALOGUE
from dmls_core.models.catalogue import load_engine
from dmls_core.models.engines.cuml import CumlForestEngine
from dmls_core.models.engines.forests import SklearnForestEngine
from dmls_core.models.engines.xgboost import CudaXGBoostEngine
from dmls_core.serving.formats.tolerance import check_parity
from dmls_core.serving.formats.treelite import checkpoint

LEVELS = (3, 40, 700)
ROWS, SCORED = 900, 900


def make_data(classes: int, *, missing: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of three categories and two numbers, and a target that depends on each level.

    The last ``SCORED`` rows have unknown (code k) and missing (k + 1) categories; the first may lack them.
    """
    draw = np.random.default_rng(classes)
    rows = ROWS + SCORED
    features = np.empty((rows, 5), dtype=np.float32)
    target = 0.3 * draw.normal(size=rows)
    for position, levels in enumerate(LEVELS):
        codes = draw.integers(0, levels, rows)
        codes[:ROWS][draw.random(ROWS) < 0.1 * missing] = levels + 1
        codes[ROWS:][draw.random(SCORED) < 0.2] = levels
        codes[ROWS:][draw.random(SCORED) < 0.2] = levels + 1
        features[:, position] = codes
        target += draw.normal(size=levels + 2)[codes]
    features[:, 3:] = draw.normal(size=(rows, 2))
    target += features[:, 3]
    features[:, 3:][draw.random((rows, 2)) < 0.1] = np.nan
    if classes:
        target = np.digitize(target, np.quantile(target, np.arange(1, classes) / classes)).astype(np.int32)
    return features, target


def load(family: str, classes: int) -> tuple[Any, Any]:
    model = CATALOGUE[f"{family}-{'classifier' if classes else 'regressor'}"]
    engine = load_engine("cpu", model.name)
    engine.categories = (0, 1, 2)
    return model, engine


@pytest.mark.parametrize("missing", [True, False])
@pytest.mark.parametrize("classes", [0, 2, 3])
@pytest.mark.parametrize("family", ["xgboost", "lightgbm"])
def test_the_checkpoint_predicts_as_the_library(family, classes, missing, tmp_path: Path):
    features, target = make_data(classes, missing=missing)
    model, engine = load(family, classes)
    fitted = engine.fit(
        model, {"n_estimators": 40}, features[:ROWS], target[:ROWS], n_classes=classes, seed=0, threads=1
    )
    exported = checkpoint.export(fitted.to_treelite(), tmp_path / "checkpoint.tl")

    trees = [exported.get_tree_accessor(number) for number in range(exported.num_tree)]
    assert any(tree.get_field("has_categorical_split")[0] for tree in trees)
    own = fitted.predict(features)
    check_parity(own, checkpoint.predict(exported, features), checkpoint.tolerance(exported, features))


@pytest.mark.parametrize("classes", [0, 2, 3])
@pytest.mark.parametrize("family", ["xgboost", "lightgbm"])
@pytest.mark.parametrize("missing", [True, False])
def test_shared_bins_score_as_a_fit_does(family, classes, missing):
    """Levels beyond those of the fold have no bin."""
    features, target = make_data(classes, missing=missing)
    model, engine = load(family, classes)
    fold, scored = (features[:ROWS], target[:ROWS]), features[ROWS:]
    options = {"n_classes": classes, "seed": 0, "threads": 1}
    params = {"n_estimators": 20, "learning_rate": 0.2}
    growing = engine.bin(model, params, *fold, scored, **options).start(params)
    for rounds in (3, 20):
        fitted = engine.fit(model, {**params, "n_estimators": rounds}, *fold, **options)
        np.testing.assert_allclose(growing.grow(rounds), fitted.predict(scored), rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("family", ["xgboost", "lightgbm"])
def test_levels_are_no_order(family):
    """A target by the parity of the level: few sets separate what many thresholds would."""
    draw = np.random.default_rng(0)
    features = draw.integers(0, 60, (3000, 1)).astype(np.float32)
    target = (features[:, 0] % 2).astype(np.int32)
    model, engine = load(family, 2)
    found = {}
    for native in (True, False):
        engine.categories = (0,) if native else ()
        fitted = engine.fit(
            model, {"n_estimators": 3, "max_depth": 2}, features, target, n_classes=2, seed=0, threads=1
        )
        found[native] = (fitted.predict(features).argmax(axis=1) == target).mean()

    assert found[True] == 1
    assert found[False] < 0.8


def test_engines_that_keep_an_order():
    assert not any(
        one.native_categories for one in (SklearnForestEngine, CumlForestEngine, CudaXGBoostEngine)
    )


def test_unknown_and_missing_categories_have_codes_of_their_own():
    nan = float("nan")
    table = Table(
        (TableColumn("c", ("a", "b", "z")), TableColumn("empty", ("x",)), TableColumn("n")),
        np.float32([[0, nan, 1], [2, nan, nan], [nan, nan, 2], [1, 0, 3]]),
        "y",
        np.zeros(4),
    )
    encoder = fit_encoder(table, np.array([0, 1, 2]), fill_missing=False, native_categories=True)

    assert [feature.as_json() for feature in encoder.features[:2]] == [
        {"name": "c", "kind": "category", "categories": ["a", "z"], "missing": 3.0, "unknown": 2.0},
        {"name": "empty", "kind": "category", "categories": [], "missing": 1.0, "unknown": 0.0},
    ]
    expected = np.float32([[0, 1, 1], [1, 1, nan], [3, 1, 2], [2, 0, 3]])
    np.testing.assert_array_equal(encode_table(encoder, table, np.arange(4)), expected)
    np.testing.assert_array_equal(encoder.transform(table.raw(np.arange(4))), expected)
