"""Targets whose numbers the libraries' arithmetic is too coarse for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.models import CATALOGUE, engine_class

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
    limits = [
        engine_class(device, name).target_scale for name in models for device in CATALOGUE[name].engines
    ]
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
