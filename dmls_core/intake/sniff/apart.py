"""Look at a Parquet file in a process of its own.

A few kilobytes may unfold to any size in memory, or nest so deep that the reader's stack overflows: that
must not end a server that looks at other people's files.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from typing import Any

from dmls_core.errors import DataError, PlatformError, ValidationIssue

MEMORY = 1 << 30
"""Bytes that the process may allocate."""

SECONDS = 60.0
"""Longest look."""

PATIENCE = 10.0
"""Longest wait for a turn: a server has few threads."""

_turns = threading.BoundedSemaphore(2)
"""Looks at a time."""


def sniff_apart(file: str, content: bytes, size: int) -> dict[str, Any]:
    """Return the JSON form of what ``sniff`` finds.

    Args:
        file: its name, for messages.
        content: the whole file, or its last bytes.
        size: bytes of the whole file.

    Raises:
        DataError: it is no Parquet file, nothing in it can be predicted, or it cannot be looked at.
        PlatformError: too many files are looked at just now, or no process can be started.
    """
    if not _turns.acquire(timeout=PATIENCE):
        raise PlatformError("too many Parquet files are looked at just now: try again in a moment")
    try:
        return _ask(file, content, size)
    finally:
        _turns.release()


def _ask(file: str, content: bytes, size: int) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile() as copy:
        copy.write(content)
        copy.flush()
        asked = {"path": copy.name, "file": file, "size": size, "memory": MEMORY}
        command = [sys.executable, "-P", "-m", str(__package__)]
        # Each thread of polars, as many as CPUs, would count with its stack.
        environment = os.environ | {"POLARS_MAX_THREADS": "1"}
        try:
            done = subprocess.run(
                command,
                input=json.dumps(asked).encode(),
                capture_output=True,
                timeout=SECONDS,
                check=False,
                env=environment,
            )
        except subprocess.TimeoutExpired:
            raise _refusal(file) from None
        except OSError as error:
            raise PlatformError(f"no process can be started to look at {file}: {error}") from error
    if done.returncode:
        raise _refusal(file)
    answer: dict[str, Any] = json.loads(done.stdout)
    if "issues" in answer:
        raise DataError([ValidationIssue(**issue) for issue in answer["issues"]])
    found: dict[str, Any] = answer["found"]
    return found


def _refusal(file: str) -> DataError:
    hint = "write the spec by hand if it is in order"
    return DataError(
        ValidationIssue(
            "the file is damaged, nested too deep, or too large once it is unpacked", hint, file=file
        )
    )
