"""Targets whose numbers the libraries' arithmetic is too coarse for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.models import CATALOGUE

SPREADS = {"xgboost": (1e-3, 1e17)}
"""By family, the standard deviations between which a target's trees come out the same whatever its unit. On
200 rows XGBoost lost half of its r2 at 1e-4, and all of it at 1e-5 and at 1e20: it makes no split that gains
less than 1e-6, and adds squares up in 32 bits."""

OTHER_SPREADS = (1e-7, 1e28)
"""The same of other families: scikit-learn splits no node whose variance is below 2e-16."""

DIGITS = 1e-6
"""Share of its largest value that a target's standard deviation must be, for 32-bit numbers to tell its
values apart: served models answer with these."""


def scale_warning(target: NDArray[Any], models: Iterable[str]) -> str:
    """Return what a user should know of a regression's target; empty if nothing.

    Args:
        target: (n_rows,) float64.
        models: names of the models that will be fitted to it.
    """
    spread, largest = float(target.std()), float(np.abs(target).max())
    limits = [SPREADS.get(CATALOGUE[name].family, OTHER_SPREADS) for name in models]
    if not max(low for low, _ in limits) <= spread <= min(high for _, high in limits):
        return (
            f"the target's standard deviation is {spread:.2g}, too {'small' if spread < 1 else 'large'} a "
            "number for the model's arithmetic: it may learn little or nothing. Give the target in another "
            "unit, so that it is around 1."
        )
    if spread < DIGITS * largest:
        return (
            f"the target's standard deviation is {spread:.2g}, around values of {largest:.2g}: models are "
            "served in 32-bit numbers, which do not tell these apart. Take a constant away from the target."
        )
    return ""
