"""When answers to the same rows agree: one rule for the training's export and for what is served."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

PROBABILITY_TOLERANCE = 1e-6
"""Largest difference of a probability."""

VALUE_TOLERANCE = 1e-5
"""Largest difference of a value, as a share of the largest.

A value near zero is the difference of larger ones: their size decides what float32 can hold.
"""


def rows_that_differ(expected: NDArray[Any], got: NDArray[Any], *, classification: bool) -> NDArray[np.intp]:
    """Return the rows in which answers differ.

    The class must be the very same one: a row whose two best probabilities tie must tie in both. A NaN
    agrees with nothing.

    Args:
        expected: (n_rows, n_outputs).
        got: of the same shape.
        classification: whether the outputs are probabilities, else values.
    """
    difference = np.abs(got - expected)
    if not classification:
        right = difference <= VALUE_TOLERANCE * np.abs(expected).max(initial=0)
    else:
        right = difference <= PROBABILITY_TOLERANCE
        right &= (got.argmax(axis=1) == expected.argmax(axis=1))[:, np.newaxis]
    return np.flatnonzero(~right.all(axis=1))
