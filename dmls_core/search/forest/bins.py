"""Features as codes of quantile bins: trees grow faster on them, with the same splits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

BINS = 255
"""Maximum bins of a feature; a feature with no more values than this loses none."""

SAMPLE = 100_000
"""Maximum number of rows that quantiles are computed from."""


@dataclass(frozen=True, slots=True)
class Bins:
    """Encodes features as bin codes, and decodes thresholds between codes to thresholds between values.

    Per feature, ``edges`` are ascending: code k holds the values above ``edges[k - 1]`` up to ``edges[k]``.
    """

    edges: tuple[NDArray[np.float32], ...]

    @classmethod
    def of(cls, features: NDArray[np.float32], *, seed: int) -> Bins:
        """Return the bins of features without missing values: (n_rows, n_features) float32."""
        rows: Any = slice(None)
        if len(features) > SAMPLE:
            rows = np.sort(np.random.default_rng(seed).choice(len(features), SAMPLE, replace=False))
        return cls(tuple(_edges(features[rows, column]) for column in range(features.shape[1])))

    def encode(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the codes, float32, of the same shape."""
        codes = np.empty(features.shape, np.float32)
        for column, edges in enumerate(self.edges):
            codes[:, column] = np.searchsorted(edges, features[:, column], side="left")
        return codes

    def decode(self, features: NDArray[np.int64], thresholds: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return thresholds between values that split rows as the thresholds between codes do.

        ``code <= t`` is ``value <= edges[floor(t)]``. ``features`` holds the column of each node's split,
        negative in a leaf, whose threshold stays. All arrays have the shape (n_nodes,).
        """
        found = thresholds.copy()
        inner = np.flatnonzero(features >= 0)
        offsets = np.cumsum([0, *(len(edges) for edges in self.edges)])
        flat = np.concatenate(self.edges) if offsets[-1] else np.empty(0, np.float32)
        found[inner] = flat[offsets[features[inner]] + thresholds[inner].astype(np.int64)]
        return found


def _edges(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return float32 edges half way between neighbouring values, as scikit-learn splits."""
    ordered, counts = np.unique(values, return_counts=True)
    if len(ordered) > BINS:
        # Quantiles of the rows: a bin ends at the last value that fits.
        ends = np.searchsorted(np.cumsum(counts), len(values) * np.arange(1, BINS) / BINS)
        ends = np.unique(ends[ends < len(ordered) - 1])
    else:
        ends = np.arange(len(ordered) - 1)
    low, high = ordered[ends], ordered[ends + 1]
    middle = (low.astype(np.float64) + high).astype(np.float64) / 2
    edges = middle.astype(np.float32)
    # Rounding must not carry an edge up to the next value.
    return np.where(edges >= high, low, edges)
