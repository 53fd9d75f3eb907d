"""CatBoost's trees as Treelite trees: the same sums, and rows on the same side of every border."""

from __future__ import annotations

import numpy as np
import pytest
import treelite

from dmls_core.errors import DataError
from dmls_core.models import CATALOGUE
from dmls_core.models.catalogue import load_engine
from dmls_core.models.engines.catboost import FittedCatBoost
from dmls_core.serving.formats.treelite.gtil import predict_float64

ROWS = 1_500


def fit(classes: int, rows: np.ndarray, target: np.ndarray, **params: float) -> FittedCatBoost:
    model = CATALOGUE[f"catboost-{'classifier' if classes else 'regressor'}"]
    settings = {"n_estimators": 60, "learning_rate": 0.3, **params}
    fitted = load_engine("cpu", model.name).fit(
        model, settings, rows, target, n_classes=classes, seed=0, threads=1
    )
    assert isinstance(fitted, FittedCatBoost)
    return fitted


def make_rows(classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(classes)
    rows = rng.normal(size=(ROWS, 6)).astype(np.float32)
    rows[:, 4] = rng.integers(0, 4, ROWS)
    signal = rows[:, 0] + rows[:, 1] * rows[:, 2] + (rows[:, 4] == 2)
    rows[:, :3][rng.random((ROWS, 3)) < 0.1] = np.nan
    if not classes:
        return rows, signal.astype(np.float64)
    return rows, np.digitize(signal, np.quantile(signal, np.arange(1, classes) / classes)).astype(np.int32)


def borders(model: treelite.Model) -> dict[int, np.ndarray]:
    """Return the thresholds of each column."""
    found: dict[int, list[np.ndarray]] = {}
    for number in range(model.num_tree):
        tree = model.get_tree_accessor(number)
        inner = tree.get_field("cleft") >= 0
        for column in np.unique(tree.get_field("split_index")[inner]):
            of_column = inner & (tree.get_field("split_index") == column)
            found.setdefault(int(column), []).append(tree.get_field("threshold")[of_column])
    return {column: np.unique(np.concatenate(values)) for column, values in found.items()}


def margins(model: treelite.Model, rows: np.ndarray) -> np.ndarray:
    found = treelite.gtil.predict(model, rows.astype(np.float64), pred_margin=True)
    return found.reshape(len(rows), -1).squeeze()


@pytest.mark.parametrize("classes", [0, 2, 3, 7])
@pytest.mark.parametrize("depth", [1, 6, 10])
def test_rows_on_and_next_to_every_border_have_the_librarys_sums(classes: int, depth: int) -> None:
    """All tests are of single-precision numbers, so the sums differ by the order of additions alone."""
    rows, target = make_rows(classes)
    fitted = fit(classes, rows, target, depth=depth, n_estimators=10)
    model = fitted.to_treelite()
    rng = np.random.default_rng(0)
    for column, thresholds in borders(model).items():
        edges = thresholds.astype(np.float32)
        assert (edges == thresholds).all()
        inner = edges[np.abs(edges) < 1e38]
        near = [np.nextafter(inner, np.float32(end), dtype=np.float32) for end in (-np.inf, np.inf)]
        tried = np.concatenate([edges, *near, np.float32([np.nan, np.inf, -np.inf])])
        block = rows[rng.integers(0, ROWS, len(tried))]
        block[:, column] = tried
        assert margins(model, block) == pytest.approx(fitted.margins(block), rel=1e-12, abs=1e-12)


def test_classes_that_the_rows_lack_have_no_probability() -> None:
    rows, target = make_rows(7)
    kept = ~np.isin(target, [0, 3])
    fitted = fit(7, rows[kept], target[kept])
    found, served = fitted.predict(rows), predict_float64(fitted.to_treelite(), rows).reshape(ROWS, 7)
    assert found[:, [0, 3]].max() < 1e-9
    assert served == pytest.approx(found, abs=1e-6)  # Treelite's softmax is in single precision


def test_the_first_rounds_are_those_of_a_model_fitted_with_fewer() -> None:
    rows, target = make_rows(3)
    whole, short = fit(3, rows, target), fit(3, rows, target, n_estimators=20)
    assert (whole.first_rounds(20).margins(rows) == short.margins(rows)).all()
    assert whole.first_rounds(20).to_treelite().num_tree == 3 * 20
    assert whole.to_treelite().num_tree == 3 * 60


def test_equal_leaves_are_one() -> None:
    """Most leaves of a deep tree have no rows: the checkpoint leaves them out."""
    rows, target = make_rows(0)
    model = fit(0, rows[:100], target[:100], depth=10, n_estimators=1).to_treelite()
    assert len(model.get_tree_accessor(0).get_field("cleft")) < 2**10


def test_errors_are_without_the_place_in_the_librarys_source() -> None:
    rows, target = make_rows(2)
    with pytest.raises(DataError, match=r"^catboost-classifier cannot be fitted: Target contains only one"):
        fit(2, rows, np.zeros_like(target))
