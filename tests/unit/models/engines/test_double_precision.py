"""Models in double precision answer as before, and join those of other families."""

from __future__ import annotations

import numpy as np
import pytest
import treelite

from dmls_core.models import CATALOGUE
from dmls_core.models.catalogue import load_engine
from dmls_core.models.engines import FittedEnsemble
from dmls_core.models.engines.double_precision import as_double
from dmls_core.serving.formats.tolerance import check_parity
from dmls_core.serving.formats.treelite import checkpoint
from dmls_core.serving.formats.treelite.gtil import nvforest_predictor
from dmls_core.testing.engines import make_data

KINDS = ["binary", "multiclass", "regression"]

CATEGORIES = 12


def fit(family: str, kind: str):
    """Return rows, of which the last column has codes of categories, and a model of them."""
    data = make_data(kind)
    codes = (np.arange(len(data.x)) * 7) % CATEGORIES
    x = np.column_stack([data.x, codes]).astype(np.float32)
    x[::5, 0] = np.nan
    name = f"{family}-{'classifier' if data.n_classes else 'regressor'}"
    engine = load_engine("cpu", name)
    engine.categories = (x.shape[1] - 1,) if engine.native_categories else ()
    target = (data.y + codes % 3 > 1).astype(np.int32) if kind == "binary" else data.y
    params = {"n_estimators": 25, "max_depth": 5} if family != "catboost" else {"n_estimators": 25}
    options = {"n_classes": data.n_classes, "seed": 0, "threads": 1}
    return x, engine.fit(CATALOGUE[name], params, x, target, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_xgboosts_trees_answer_the_same_bit_for_bit(kind: str):
    x, fitted = fit("xgboost", kind)
    single = fitted.to_treelite()
    double = treelite.Model.deserialize_bytes(as_double(single).serialize_bytes())
    assert (single.input_type, double.input_type) == ("float32", "float64")
    assert double.num_tree == single.num_tree
    assert np.array_equal(checkpoint.predict(double, x), checkpoint.predict(single, x))
    assert any(double.get_tree_accessor(t).get_field("has_categorical_split")[0] for t in range(25))


def test_a_model_in_double_precision_stays_as_it_is():
    _, fitted = fit("lightgbm", "binary")
    model = fitted.to_treelite()
    assert as_double(model) is model


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", ["lightgbm", "xgboost"])
def test_models_of_several_families_are_one_checkpoint(kind: str, first: str, tmp_path):
    families = (first, *({"lightgbm", "xgboost"} - {first}), "catboost")
    members = [fit(family, kind) for family in families]
    x = members[0][0]
    ensemble = FittedEnsemble([one for _, one in members], [0.5, 0.3, 0.2])
    own = ensemble.predict(x)
    expected = sum(
        weight * one.margins(x).astype(np.float64)
        for weight, (_, one) in zip((0.5, 0.3, 0.2), members, strict=True)
    )
    assert np.allclose(own, members[0][1].from_margins(expected))
    scale = 1 if own.ndim > 1 else np.abs(own).max()
    loaded = checkpoint.export(ensemble.to_treelite(), tmp_path / "checkpoint.tl")
    served = checkpoint.predict(loaded, x)
    assert np.abs(served - own).max() < 1e-6 * scale
    check_parity(own, served)
    assert loaded.num_tree == sum(one.to_treelite().num_tree for _, one in members)
    if predict := nvforest_predictor(loaded):
        last, expected = (found.reshape(len(x), -1)[:, -1] for found in (predict(x), own))
        assert np.abs(last - expected).max() < 1e-5 * scale
