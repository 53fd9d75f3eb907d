"""The tolerance within which predictions for the same rows agree: at the export, and of the served model."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

PROBABILITY_TOLERANCE = 1e-6

VALUE_TOLERANCE = 1e-5
"""Maximum difference of a value, relative to the largest value.

A value near zero is a difference of larger ones, whose size limits the precision of float32.
"""


def rows_that_differ(expected: NDArray[Any], got: NDArray[Any], *, classification: bool) -> NDArray[np.intp]:
    """Return the indices of rows whose predictions, both of shape (n_rows, n_outputs), differ.

    The class must be the same: if the two highest probabilities of a row tie, they must tie in both. NaN
    agrees with nothing. The outputs are probabilities for a ``classification``, otherwise values.
    """
    difference = np.abs(got - expected)
    if not classification:
        right = difference <= VALUE_TOLERANCE * np.abs(expected).max(initial=0)
    else:
        right = difference <= PROBABILITY_TOLERANCE
        right &= (got.argmax(axis=1) == expected.argmax(axis=1))[:, np.newaxis]
    return np.flatnonzero(~right.all(axis=1))
