"""Estimate of a large fit from small ones."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from dmls_core.models import CATALOGUE
from dmls_core.models.catalogue import load_engine
from dmls_core.monitoring.profile import Profile
from dmls_core.search.task import Space
from dmls_core.spec.definitions import Choice, Range
from dmls_core.training.plan import estimate_largest_fit, sizes_of
from dmls_core.training.prepared import Prepared

ROWS, TREES = 8_000, 15


@pytest.fixture(scope="module")
def data() -> Prepared:
    draw = np.random.default_rng(5)
    train = draw.normal(size=(ROWS, 6)).astype(np.float32)
    target = (train[:, :2].sum(axis=1) + draw.normal(size=ROWS) > 0).astype(np.int32)
    nothing = np.empty((0, 6), np.float32)
    return Prepared(None, train, target, nothing, target[:0], {}, {}, ("no", "yes"), (), Profile(ROWS, ()))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["random-forest-classifier", "xgboost-classifier"])
def test_the_estimated_checkpoint_is_about_as_large_as_the_real_one(data: Prepared, name: str) -> None:
    model = CATALOGUE[name]
    engine = load_engine("cpu", model.name)
    space = Space.of({"n_estimators": Range(min=10, max=TREES), "max_depth": Choice(values=(9,))})
    estimate = estimate_largest_fit(engine, model, space, data, seed=0)
    real = engine.fit(
        model,
        {"n_estimators": TREES, "max_depth": 9},
        data.train,
        data.train_target,
        n_classes=2,
        seed=0,
        threads=2,
    )
    size = len(real.to_treelite().serialize_bytes())
    # Trees of limited depth fill up, so that their size grows more slowly than the rows.
    assert size / 2 < estimate.model_bytes < 4 * size
    assert estimate.seconds > 0


def test_the_import_of_a_library_is_not_taken_for_time_that_trees_save(
    data: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first fit of a process imports it. These fits only wait, since others vary on a busy machine."""
    engine, model = load_engine("cpu", "xgboost-classifier"), CATALOGUE["xgboost-classifier"]
    rows, target = data.train[:900], data.train_target[:900]
    fitted = engine.fit(model, {"n_estimators": 2}, rows, target, n_classes=2, seed=0, threads=1)
    calls = []

    def wait(_model: object, params: dict, *arguments: object, **options: object) -> object:
        time.sleep(0.005 * params["n_estimators"] + (0 if calls else 0.5))
        calls.append(params)
        return fitted

    monkeypatch.setattr(engine, "fit", wait)
    few = replace(data, train=rows, train_target=target)
    space = Space.of({"n_estimators": Choice(values=(1_000,)), "max_depth": Choice(values=(2,))})
    found = estimate_largest_fit(engine, model, space, few, seed=0)
    assert found.seconds > 2  # without the import: 5 and more


def test_sizes_are_the_ends_of_what_is_searched() -> None:
    model = CATALOGUE["random-forest-classifier"]
    assert sizes_of(model, Space.of({"n_estimators": Range(min=3, max=70)})) == (3, 70)
    assert sizes_of(model, Space.of({"n_estimators": Choice(values=(5, 9))})) == (5, 9)
    assert sizes_of(model, Space.of({"n_estimators": Choice(values=(8,))})) == (8,)
    assert sizes_of(model, Space.of({})) == (100,)
