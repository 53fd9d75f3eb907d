"""How the C library's allocator treats what was freed: it goes back to the system."""

from __future__ import annotations

import ctypes

LARGE = 1 << 19
"""Bytes from which on a block is mapped by itself. Half of that takes 5 % more CPU seconds on small data."""

_M_MMAP_THRESHOLD = -3
"""Its number in glibc's malloc.h."""


def return_large_blocks() -> None:
    """Have large blocks given back as soon as they are freed, in this process.

    Left to itself, glibc raises the size from which on it does so to that of the largest block freed so far
    (up to 32 MiB) and keeps smaller ones, and what is allocated next finds its place behind them: on
    500,000 x 54 rows as much as the float32 matrix again. Another C library may know no such setting: then
    nothing is done.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGE)


def return_freed() -> None:
    """Give back what lies free between blocks in use.

    Many small blocks (the nodes of trees) leave room that large ones to come do not fit in: on 100,000 x 54
    rows a search left almost as much as the float32 matrix. Another C library may do so by itself.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
