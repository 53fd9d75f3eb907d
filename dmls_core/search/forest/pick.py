"""Which setting of a surface is taken."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dmls_core.spec.definitions import Direction


def pick_cut(scores: NDArray[np.float64], direction: Direction) -> int:
    """Return the cut with the best mean score over the larger half of the sizes; of equals the first.

    Forests of similar size differ by chance: their mean tells cuts apart better than the best of them.

    Args:
        scores: (n_sizes, n_cuts), the sizes ascending.
        direction: whether more is better.
    """
    means = scores[len(scores) // 2 :].mean(axis=0)
    return int(means.argmax() if direction == "maximize" else means.argmin())
