"""The Treelite checkpoint answers as the model does, and is exact in float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import treelite
from hypothesis import given
from hypothesis import strategies as st

from dmls_core.errors import ServingError
from dmls_core.models import CATALOGUE
from dmls_core.models.catalogue import load_engine
from dmls_core.serving.formats.tolerance import check_parity
from dmls_core.serving.formats.treelite import checkpoint
from dmls_core.testing.engines import make_data


def exported(name: str, kind: str, folder: Path, **params: object):
    model, data = CATALOGUE[name], make_data(kind)
    engine = load_engine("cpu", model.name)
    fitted = engine.fit(
        model,
        {"n_estimators": 40, **params},
        data.x[: data.half],
        data.y[: data.half],
        n_classes=data.n_classes,
        seed=1,
        threads=2,
    )
    return data, fitted, checkpoint.export(fitted.to_treelite(), folder / "checkpoint.tl")


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("lightgbm-classifier", {"boosting_type": "dart"}),
        ("lightgbm-classifier", {"class_weight": "balanced"}),
        ("xgboost-classifier", {"grow_policy": "lossguide", "max_leaves": 7, "max_depth": "none"}),
        ("xgboost-classifier", {"max_bin": 16, "subsample": 0.5, "colsample_bytree": 0.5}),
    ],
)
def test_unusual_settings_survive_the_export(name: str, params: dict, tmp_path: Path):
    data, fitted, loaded = exported(name, "multiclass-nan", tmp_path, **params)

    check_parity(fitted.predict(data.x), checkpoint.predict(loaded, data.x))


def thresholds(model: treelite.Model) -> list[np.ndarray]:
    """Return each tree's thresholds of inner nodes; copies, as Treelite gives views into the model."""
    trees = [model.get_tree_accessor(i) for i in range(model.num_tree)]
    return [tree.get_field("threshold")[tree.get_field("cleft") >= 0].copy() for tree in trees]


def test_thresholds_fit_into_float32_after_the_export(tmp_path: Path):
    _, fitted, loaded = exported("extra-trees-classifier", "multiclass", tmp_path)
    original = fitted.to_treelite()
    before, after = np.concatenate(thresholds(original)), np.concatenate(thresholds(loaded))

    assert (before != before.astype(np.float32)).any()
    assert (after == after.astype(np.float32)).all()


def test_a_threshold_that_would_round_up_onto_a_value(tmp_path: Path):
    """Two neighbouring float32 values: the midpoint rounds onto the upper one half of the time."""
    from sklearn.ensemble import RandomForestClassifier
    from treelite.sklearn import import_model

    low = np.float32(1000) + np.arange(40, dtype=np.float32) * 3 * np.spacing(np.float32(1000))
    x = np.stack([low, np.nextafter(low, np.float32(2000))], axis=1).reshape(-1, 1)
    y = np.tile([0, 1], len(low))
    forest = RandomForestClassifier(20, random_state=0, bootstrap=False).fit(x, y)
    model = import_model(forest)
    raw = thresholds(model)
    rounded = [t.astype(np.float32) for t in raw]
    assert any((np.isin(r, x) & (t != r)).any() for t, r in zip(raw, rounded, strict=True))

    loaded = checkpoint.export(model, tmp_path / "checkpoint.tl")

    for before, after in zip(raw, thresholds(loaded), strict=True):
        left = after.astype(np.float32) >= x
        assert (left == (x.astype(np.float64) <= before)).all()


finite32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(x=finite32, t=st.one_of(finite32, st.floats(allow_nan=False, allow_infinity=False)))
def test_snapping_changes_no_comparison(x: float, t: float):
    thresholds = np.array([t])
    value = np.float32(x)

    down = checkpoint._round_towards(thresholds, -np.inf).astype(np.float32)[0]
    up = checkpoint._round_towards(thresholds, np.inf).astype(np.float32)[0]

    assert (value <= down) == (x <= t)
    assert (value < up) == (x < t)


def test_parity_names_the_first_row_that_differs():
    own = np.array([[0.5, 0.5], [0.25, 0.75], [1, 0]])
    served = own.astype(np.float32)
    check_parity(own, served)
    served[1] = [0.3, 0.7]

    with pytest.raises(ServingError, match=r"1 of 3 rows; row 1: expected \[0.25, 0.75\]"):
        check_parity(own, served)


def test_parity_is_that_of_a_few_trees_by_default():
    own = np.array([[0.25, 0.75]])
    check_parity(own, own + np.array([[9e-7, -9e-7]]))
    with pytest.raises(ServingError, match="1 of 1 rows"):
        check_parity(own, own + np.array([[1.5e-6, -1.5e-6]]))


def test_rounding_may_choose_between_two_classes_that_tie():
    own = np.array([[0.5 + 2e-7, 0.5 - 2e-7]])
    check_parity(own, own[:, ::-1])
    own = np.array([[0.5 + 8e-7, 0.5 - 8e-7]])
    with pytest.raises(ServingError, match="1 of 1 rows"):
        check_parity(own, own[:, ::-1])


@pytest.mark.parametrize("broken", [np.array([1.0, np.nan]), np.array([1.0]), np.array([1.0, 2.1])])
def test_parity_refuses(broken: np.ndarray):
    with pytest.raises(ServingError):
        check_parity(np.array([1.0, 2.0]), broken)


def test_what_is_no_checkpoint(tmp_path: Path):
    (tmp_path / "checkpoint.tl").write_bytes(b"not a model")

    with pytest.raises(ServingError, match=r"checkpoint\.tl is not a Treelite checkpoint"):
        checkpoint.load(tmp_path / "checkpoint.tl")
