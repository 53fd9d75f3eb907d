"""Draw rows with replacement for the bootstrap: single rows, or groups and blocks of time as a whole.

Rows of one group, or close in time, are alike: drawn one by one, they would make a score look more certain
than it is (cluster and block bootstrap; Davison and Hinkley, "Bootstrap methods and their application",
1997).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.intp]

_UNIT_ROWS = 20_000
"""Rows at most that are drawn as units; of more rows, so many are chosen at random."""


@dataclass(frozen=True, slots=True)
class Resampler:
    """Draws of ``n_rows`` rows, ``most`` of them at a time if ``units`` is None.

    ``units``: (n_rows,) the unit of each row; every draw has as many units as there are.
    """

    n_rows: int
    most: int
    units: NDArray[np.int64] | None = None

    def draws(self, count: int, seed: int) -> Iterator[Rows]:
        """Yield the row numbers of each of ``count`` draws."""
        generator = np.random.default_rng(seed)
        if self.units is None:
            drawn = min(self.n_rows, self.most)
            for _ in range(count):
                yield generator.integers(0, self.n_rows, drawn)
            return
        rows = self._sampled()
        codes = np.unique(self.units[rows], return_inverse=True)[1]
        rows, sizes = rows[np.argsort(codes, kind="stable")], np.bincount(codes)
        starts = sizes.cumsum() - sizes
        for _ in range(count):
            picked = generator.integers(0, len(sizes), len(sizes))
            ends = sizes[picked].cumsum()
            positions = np.repeat(starts[picked] - ends + sizes[picked], sizes[picked]) + np.arange(ends[-1])
            yield rows[positions]

    def scale(self, values: NDArray[np.float64], score: Callable[[Rows], float]) -> NDArray[np.float64]:
        """Return scores of draws as those of draws from all rows; ``score`` returns that of some rows."""
        if self.units is not None:
            sampled = self._sampled()
            if len(sampled) == self.n_rows:
                return values
            shifted: NDArray[np.float64] = values + score(np.arange(self.n_rows)) - score(sampled)
            return shifted
        if self.n_rows <= self.most:
            return values
        base = score(np.arange(self.n_rows))
        scaled: NDArray[np.float64] = base + (values - base) * np.sqrt(self.most / self.n_rows)
        return scaled

    def _sampled(self) -> Rows:
        if self.n_rows <= _UNIT_ROWS:
            return np.arange(self.n_rows)
        return np.sort(np.random.default_rng(0).choice(self.n_rows, _UNIT_ROWS, replace=False))
