"""The tolerance within which predictions for the same rows agree: at the export, and of the served model.

FIL adds the predictions of T trees in float32, scikit-learn and LightGBM in float64. Each addition errs
by at most u = 2**-24 times the partial sum. If the errors are independent, their sum exceeds c * u *
sqrt(T) times the largest partial sum with a probability that falls as exp(-c**2 / 2); u * T is the worst
case (Higham and Mary, "A new approach to probabilistic rounding error analysis", SIAM J. Sci. Comput. 41,
2019). No partial sum of a forest's probabilities exceeds the final one, which is at most 1 after the
division by T: c = 4 covers it. Boosted trees may have larger partial sums, which cancel: twice the
difference between float32 and float64 on the golden rows covers these. ``LARGEST`` limits both: no
tolerance hides a wrong model.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.errors import ServingError

PROBABILITY_TOLERANCE = 1e-6

VALUE_TOLERANCE = 1e-5
"""Maximum difference of a value, relative to the largest value.

A value near zero is a difference of larger ones, whose size limits the precision of float32.
"""

LARGEST = 1e-3

_UNIT_ROUNDOFF = 2.0**-24


def base_tolerance(*, classification: bool) -> float:
    """Return the tolerance of a model of a few trees."""
    return PROBABILITY_TOLERANCE if classification else VALUE_TOLERANCE


def model_tolerance(
    n_trees: int, single: NDArray[Any], double: NDArray[Any], *, classification: bool
) -> float:
    """Return the tolerance of a model with ``n_trees`` trees.

    ``single`` and ``double`` are its predictions in float32 and in float64 for the golden rows.
    """
    measured = float(np.abs(single - double).max(initial=0))
    if not classification:
        measured /= float(np.abs(double).max(initial=0)) or 1.0
    base = base_tolerance(classification=classification)
    return min(LARGEST, max(base, 4 * _UNIT_ROUNDOFF * math.sqrt(n_trees), 2 * measured))


def rows_that_differ(
    expected: NDArray[Any],
    got: NDArray[Any],
    *,
    classification: bool,
    tolerance: float | None = None,
    ties: bool = False,
) -> NDArray[np.intp]:
    """Return the indices of rows whose predictions, both of shape (n_rows, n_outputs), differ.

    The outputs are probabilities for a ``classification``, otherwise values. The class must be the same: if
    the two highest probabilities of a row tie, they must tie in both. With ``ties``, a class whose expected
    probability is within the tolerance of the highest is right too. NaN agrees with nothing. ``tolerance`` is
    that of the model, by default that of a few trees.
    """
    tolerance = base_tolerance(classification=classification) if tolerance is None else tolerance
    difference = np.abs(got - expected)
    if not classification:
        return np.flatnonzero(~(difference <= tolerance * np.abs(expected).max(initial=0)).all(axis=1))
    right = (difference <= tolerance).all(axis=1)
    chosen = np.take_along_axis(expected, got.argmax(axis=1)[:, np.newaxis], axis=1)[:, 0]
    if ties:
        right &= chosen >= expected.max(axis=1, initial=-np.inf) - tolerance
    else:
        right &= got.argmax(axis=1) == expected.argmax(axis=1)
    return np.flatnonzero(~right)


def check_parity(expected: NDArray[Any], served: NDArray[Any], tolerance: float | None = None) -> None:
    """Compare a fitted model's predictions with those of the written files for the same rows.

    Both have the same shape. ``tolerance`` is that of the model, by default that of a few trees. Where the
    probabilities of two classes are within it, rounding decides which is higher, so either class is right.

    Raises:
        ServingError: they differ; the message names the first row.
    """
    if expected.shape != served.shape:
        raise ServingError(
            f"the exported model returns shape {served.shape}, the fitted model {expected.shape}"
        )
    both = (answers.reshape(len(answers), -1) for answers in (expected.astype(np.float32), served))
    bad = rows_that_differ(*both, classification=expected.ndim > 1, tolerance=tolerance, ties=True)
    if len(bad):
        row = int(bad[0])
        raise ServingError(
            f"the exported model differs from the fitted model in {len(bad)} of {len(expected)} rows; "
            f"row {row}: expected {expected[row].tolist()}, got {served[row].tolist()}"
        )
