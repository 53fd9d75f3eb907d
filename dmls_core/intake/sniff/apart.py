"""Infer the schema of a Parquet file in a sandbox."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path
from typing import Any

from dmls_core import sandbox
from dmls_core.errors import PlatformError
from dmls_core.intake.sniff.sample import parquet_tail, read_sample
from dmls_core.intake.sniff.sniffed import sniff

PATIENCE = 10.0
"""Longest wait for a turn: a server has few threads."""

_turns = threading.BoundedSemaphore(2)
"""Files that are read at a time."""


def sniff_apart(file: str, content: bytes, size: int) -> dict[str, Any]:
    """Return the JSON form of what ``sniff`` finds.

    Args:
        file: its name, for messages.
        content: the whole file, or its last bytes.
        size: bytes of the whole file.

    Raises:
        DataError: this is not a Parquet file, it has no column to predict, or it cannot be read.
        PlatformError: too many files are being read, or no process can be started.
    """
    if not _turns.acquire(timeout=PATIENCE):
        raise PlatformError("too many Parquet files are being read: try again in a moment")
    try:
        with tempfile.NamedTemporaryFile() as copy:
            copy.write(content)
            copy.flush()
            found: dict[str, Any] = sandbox.run(sniff_file, copy.name, file, size, file=file)
            return found
    finally:
        _turns.release()


def sniff_file(path: str, file: str, size: int) -> dict[str, Any]:
    """Read a Parquet file, or the end of a larger one; runs in the sandbox."""
    content = Path(path).read_bytes()
    whole = len(content) >= size
    sample = read_sample(file, content, complete=True) if whole else parquet_tail(file, content, size)
    return sniff(file, sample).as_json()
