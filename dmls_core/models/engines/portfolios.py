"""Portfolios of boosted trees: configurations that a search with ``strategy = "auto"`` tries first.

``tests/bench/portfolio.py`` chose them, with the learning rate of ``search/shrinkage.py``. Each is good on
data sets where those before it are not. The first one is the model of a search of one trial.
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
    (3, 11.0, 0.85, 1.0, 0.011),
    (3, 0.76, 0.7, 0.54, 0.033),
    (4, 1.4, 0.93, 0.7, 2.3),
    (8, 2.9, 0.58, 0.63, 9.8),
    (3, 0.68, 0.78, 0.92, 1.0),
    (4, 13.0, 0.93, 0.53, 0.053),
    (9, 0.97, 0.73, 0.94, 1.2),
)

CATBOOST = _portfolio(
    "depth l2_leaf_reg random_strength subsample colsample_bylevel",
    (6, 3.0, 1.0, 0.8, 1.0),  # CatBoost's defaults
)
