"""The footer of a Parquet file: the columns with their types, and where each group of rows lies."""

from __future__ import annotations

from collections.abc import Callable

MARK = b"PAR1"

USUAL = 1 << 20
"""Bytes from the end in which the footer of most files lies."""

_LONGEST = 64 << 20
"""Longest footer that is read: 10,000 columns take 1 MB for each group of rows."""


def read_footer(size: int, read: Callable[[int, int], bytes]) -> bytes:
    """Return the end of a file of ``size`` bytes, with its whole footer if that is not too long.

    ``read`` returns bytes of the file by start and number.
    """
    tail = read(max(0, size - USUAL), USUAL)
    if not tail.endswith(MARK):
        return tail
    needed = min(size, _LONGEST, int.from_bytes(tail[-8:-4], "little") + 8)
    return tail if needed <= len(tail) else read(size - needed, needed)
