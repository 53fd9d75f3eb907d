"""XGBoost's bins of a table on disk."""

from __future__ import annotations

import numpy as np
import pytest

from dmls_core.models.engines import xgboost_matrices
from dmls_core.models.engines.xgboost_matrices import binned
from dmls_core.stored_matrix import StoredMatrix


@pytest.fixture
def stored(tmp_path):
    file = np.memmap(tmp_path / "matrix", np.float32, "w+", shape=(2_000, 2), order="F")
    draw = np.random.default_rng(1)
    file[:, 0], file[:, 1] = draw.normal(size=2_000), draw.integers(0, 3, 2_000)
    file[1_234, 1] = 9  # one row of all has the last category
    return StoredMatrix(file, np.arange(2_000))


def test_the_bins_of_a_sample_hold_all_rows_and_categories(stored, monkeypatch):
    monkeypatch.setattr(xgboost_matrices, "rows_to_bin", lambda _: 400)
    options = {"feature_types": ["q", "c"], "enable_categorical": True, "max_bin": 8, "nthread": 1}
    target = np.zeros(2_000)

    matrix = binned(stored, target, **options)

    assert matrix.num_row() == 2_000
    ends, cuts = matrix.get_quantile_cut()
    numbers, codes = np.split(cuts, ends[1:2].astype(int))
    assert codes.max() == 9
    values = np.asarray(stored.file[:, 0])
    shares = np.diff([0.0, *[(values < cut).mean() for cut in numbers[1:-1]], 1.0])
    assert shares.min() > 0.05
    assert shares.max() < 0.25
