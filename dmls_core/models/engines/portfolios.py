"""Portfolios of boosted trees: configurations that a search with ``strategy = "auto"`` tries first.

``tests/bench/portfolio.py`` chose them, with the learning rate of ``search/shrinkage.py``. Each is good on
data sets where those before it are not. LightGBM's first two changed places: a search of one trial is the
first, and with 61 % of two columns no tree combines them.
"""

from __future__ import annotations

from dmls_core.spec.definitions import Scalar

Portfolio = tuple[dict[str, Scalar], ...]


def _portfolio(names: str, *configurations: tuple[Scalar, ...]) -> Portfolio:
    return tuple(dict(zip(names.split(), values, strict=True)) for values in configurations)


LIGHTGBM = _portfolio(
    "num_leaves min_child_samples subsample colsample_bytree reg_lambda",
    (10, 7, 0.59, 0.83, 0.098),
    (25, 26, 0.86, 0.61, 0.18),
    (25, 46, 0.77, 0.83, 0.025),
    (119, 14, 0.99, 0.55, 0.074),
    (8, 6, 0.7, 0.54, 0.033),
    (110, 68, 0.89, 0.68, 0.011),
    (63, 10, 0.84, 0.79, 0.028),
    (26, 13, 0.77, 0.53, 0.053),
)

XGBOOST = _portfolio(
    "max_depth min_child_weight subsample colsample_bytree reg_lambda",
    (3, 0.9, 0.59, 0.83, 0.098),
    (3, 0.76, 0.7, 0.54, 0.033),
    (8, 0.79, 0.59, 0.79, 0.025),
    (3, 14.0, 0.97, 0.87, 1.7),
    (7, 4.1, 0.59, 0.69, 1.4),
    (9, 0.51, 0.67, 0.72, 2.4),
    (10, 17.0, 0.96, 0.69, 4.4),
    (5, 9.4, 0.97, 0.62, 0.017),
)
