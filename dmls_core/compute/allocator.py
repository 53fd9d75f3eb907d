"""How the C library's allocator treats large blocks: freed ones go back to the system at once."""

from __future__ import annotations

import ctypes

LARGE = 1 << 20
"""Bytes from which on a block is mapped by itself."""

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
