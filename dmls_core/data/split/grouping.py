"""Divide rows into parts that keep groups whole, or that follow each other in time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.stored_matrix import Matrix

BALANCED = 20_000
"""Groups that are placed one by one; the shares of further ones even out by their number."""

CACHED_ROWS = 16_384
"""Rows in memory that are hashed at a time: in a processor's cache, columns are read twice as fast."""


def assign_groups(
    groups: NDArray[np.int64], target: NDArray[Any], shares: Sequence[float], *, n_classes: int, seed: int
) -> NDArray[np.int64]:
    """Return the part of each row, (n_rows,): every group is in one part, and every part has a group.

    Groups are placed in random order where they keep the rows, and for a classification the classes, closest
    to ``shares``, which sum to 1. ``groups`` holds codes, of which there must be at least as many as parts;
    ``target`` holds class codes, or values if ``n_classes`` is 0.
    """
    names, codes = np.unique(groups, return_inverse=True)
    count, parts = len(names), len(shares)
    if count < parts:
        raise ValueError(f"{count} groups cannot be divided into {parts} parts")
    classes = target.astype(np.int64) if n_classes else np.zeros(len(codes), np.int64)
    width = max(1, n_classes)
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(count + 1))
    totals = np.bincount(classes, minlength=width).astype(np.float64)
    scale = 1 / (np.asarray(shares)[:, None] * np.maximum(totals, 1) ** 2)
    held = np.zeros((parts, width))
    generator = np.random.default_rng(seed)
    queue = generator.permutation(count)
    placed = np.empty(count, np.int64)
    for group in queue[:BALANCED]:
        rows = np.bincount(classes[order[starts[group] : starts[group + 1]]], minlength=width)
        part = int(((2 * held + rows) * rows * scale).sum(axis=1).argmin())
        placed[group] = part
        held[part] += rows
    if count > BALANCED:
        placed[queue[BALANCED:]] = generator.choice(parts, count - BALANCED, p=shares)
    sizes = np.diff(starts)
    for part in range(parts):
        if not (placed == part).any():  # the smallest group of the part with the most groups moves there
            donor = np.bincount(placed, minlength=parts).argmax()
            donor_groups = np.flatnonzero(placed == donor)
            placed[donor_groups[sizes[donor_groups].argmin()]] = part
    parts_of_rows: NDArray[np.int64] = placed[codes]
    return parts_of_rows


def first_of_last(times: NDArray[np.int64], share: float) -> int:
    """Return the time from which on the rows are closest to ``share`` of all rows.

    Rows of one time stay together. There must be at least two times.
    """
    moments, counts = np.unique(times, return_counts=True)
    later = counts[::-1].cumsum()[::-1][1:]
    return int(moments[1:][np.abs(later - np.ceil(share * len(times))).argmin()])


def time_blocks(times: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the block of each row, from 0, the earliest: ``count`` blocks with about equally many rows.

    Rows of one time stay in one block; there must be at least ``count`` times.
    """
    moments, codes, counts = np.unique(times, return_inverse=True, return_counts=True)
    ends, block_of_time = counts.cumsum(), np.empty(len(moments), np.int64)
    start = 0
    for block in range(count):
        # Every later block needs a time of its own.
        last = len(moments) - (count - block - 1)
        target_end = len(times) * (block + 1) / count
        end = last if block == count - 1 else int(np.abs(ends[start:last] - target_end).argmin()) + start + 1
        block_of_time[start:end] = block
        start = end
    blocks: NDArray[np.int64] = block_of_time[codes]
    return blocks


def hash_rows(rows: Matrix) -> NDArray[np.uint64]:
    """Return a 64-bit hash of each row without copying the matrix."""
    generator = np.random.default_rng(0)
    factors = generator.integers(1, 2**63, size=(rows.shape[1], 1), dtype=np.uint64) | np.uint64(1)
    hashes = np.zeros(len(rows), dtype=np.uint64)
    step = CACHED_ROWS if isinstance(rows, np.ndarray) else max(1, len(rows))
    for start in range(0, len(rows), step):
        part = hashes[start : start + step]
        for column in range(rows.shape[1]):
            part ^= part >> np.uint64(29)
            # Multiplication by an odd factor loses no bit.
            bits = rows[start : start + step, column].view(np.uint32)
            part += (bits.astype(np.uint64) + np.uint64(1)) * factors[column]
    return hashes


def join_groups(one: NDArray[Any], other: NDArray[Any]) -> NDArray[np.int64]:
    """Return groups, (n_rows,), that keep together all rows that share a group of either kind."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    first, second = (np.unique(groups, return_inverse=True)[1] for groups in (one, other))
    size = int(first.max()) + 1
    nodes = size + int(second.max()) + 1
    edges = coo_array((np.ones(len(first), np.int8), (first, size + second)), shape=(nodes, nodes))
    _, components = connected_components(edges, directed=False)
    groups: NDArray[np.int64] = components[first].astype(np.int64)
    return groups
