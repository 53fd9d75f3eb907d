"""Splits at random, the same as scikit-learn's of the same seed, in 4 bytes of memory for each row.

scikit-learn's stratified split makes a Python object for each row.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

RowNumbers = NDArray[np.int32]
"""Positions of rows; ``DataLimits.rows`` is far below the most that 32 bits can count."""


def split_at_random(rows: int, held_out: int, seed: int) -> tuple[RowNumbers, RowNumbers]:
    """Return the rows to train on and those to hold out, each in random order."""
    order = np.arange(rows, dtype=np.int32)
    np.random.RandomState(seed).shuffle(order)
    return order[held_out:], order[:held_out]


def split_by_class(codes: NDArray[np.integer], held_out: int, seed: int) -> tuple[RowNumbers, RowNumbers]:
    """Split like ``split_at_random``; each class has its share of both sides.

    ``codes`` are class indices from 0. Each class needs two rows, and each side a row for each class.
    """
    counts = np.bincount(codes)
    order = np.argsort(codes, kind="stable").astype(np.int32)
    generator = np.random.RandomState(seed)
    fitted = _shares(counts, len(codes) - held_out, generator)
    scored = _shares(counts - fitted, held_out, generator)
    train, test = [], []
    for class_rows, some, others in zip(np.split(order, np.cumsum(counts)[:-1]), fitted, scored, strict=True):
        generator.shuffle(class_rows)
        train.append(class_rows[:some])
        test.append(class_rows[some : some + others])
    sides = np.concatenate(train), np.concatenate(test)
    for side in sides:
        generator.shuffle(side)
    return sides


# scikit-learn has it, too, as a private function; its import takes a second of each check of a submission.
def _shares(counts: NDArray[np.integer], drawn: int, generator: np.random.RandomState) -> NDArray[np.integer]:
    """Return each class's part of ``drawn`` rows, by the largest remainders; a tie is decided at random."""
    exact = counts / counts.sum() * drawn
    shares: NDArray[np.float64] = np.floor(exact)
    remainders = exact - shares
    missing = int(drawn - shares.sum())
    for remainder in np.unique(remainders)[::-1]:
        if missing == 0:
            break
        tied = np.flatnonzero(remainders == remainder)
        chosen = generator.choice(tied, size=min(len(tied), missing), replace=False)
        shares[chosen] += 1
        missing -= len(chosen)
    return shares.astype(np.int64)
