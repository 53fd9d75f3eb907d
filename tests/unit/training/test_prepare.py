"""Targets whose numbers the libraries' arithmetic is too coarse for."""

from __future__ import annotations

import numpy as np
import pytest

from dmls_core.training.prepare import scale_warning

FOREST, BOOSTED = ["random-forest-regressor"], ["lightgbm-regressor", "xgboost-regressor"]
TARGET = np.random.default_rng(0).normal(size=200)


@pytest.mark.parametrize(
    ("scale", "shift", "models", "message"),
    [
        (1, 0, BOOSTED, ""),
        (1e-5, 0, FOREST, ""),
        (1e-5, 0, BOOSTED, "too small a number"),
        (1e-9, 0, FOREST, "too small a number"),
        (1e20, 0, FOREST, ""),
        (1e20, 0, BOOSTED, "too large a number"),
        (1, 1e4, FOREST, ""),
        (1, 1e8, FOREST, "Subtract a constant"),
    ],
)
def test_warns_of_a_target_in_an_unsuitable_unit(scale, shift, models, message):
    found = scale_warning(TARGET * scale + shift, models)

    assert bool(found) is bool(message)
    assert message in found
