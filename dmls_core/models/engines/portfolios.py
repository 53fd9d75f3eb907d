"""Portfolios of boosted trees: configurations that a search with ``strategy = "auto"`` tries first.

``tests/bench/portfolio.py`` chose them. Each is good on data sets where those before it are not.
"""

from __future__ import annotations

from dmls_core.spec.definitions import Scalar

Portfolio = tuple[dict[str, Scalar], ...]


def _portfolio(names: str, *configurations: tuple[Scalar, ...]) -> Portfolio:
    return tuple(dict(zip(names.split(), values, strict=True)) for values in configurations)


LIGHTGBM = _portfolio(
    "learning_rate num_leaves min_child_samples subsample colsample_bytree reg_lambda",
    (0.022, 12, 14, 0.89, 0.83, 0.017),
    (0.05, 10, 5, 0.75, 0.62, 1.0),
    (0.041, 38, 43, 0.61, 0.71, 0.015),
    (0.043, 23, 6, 0.54, 0.55, 0.015),
    (0.041, 63, 25, 0.83, 0.57, 0.011),
    (0.11, 10, 7, 0.86, 0.52, 0.046),
    (0.014, 117, 15, 0.9, 0.91, 0.016),
    (0.13, 8, 13, 0.72, 0.9, 0.082),
)

XGBOOST = _portfolio(
    "learning_rate max_depth min_child_weight subsample colsample_bytree reg_lambda",
    (0.05, 3, 0.51, 0.75, 0.62, 1.0),
    (0.096, 3, 0.95, 0.79, 0.57, 0.081),
    (0.041, 7, 7.3, 0.61, 0.71, 0.015),
    (0.068, 3, 19.0, 0.93, 0.87, 0.014),
    (0.043, 6, 0.75, 0.54, 0.55, 0.015),
    (0.011, 3, 2.2, 0.54, 0.59, 1.5),
    (0.13, 3, 1.8, 0.72, 0.9, 0.082),
    (0.11, 3, 0.89, 0.86, 0.52, 0.046),
)
