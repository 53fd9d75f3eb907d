"""Make the shared memory of a process of Triton's Python backend private: by default all users read it.

The file is copied to the models that this backend runs, and imports nothing of DMLS.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

_FOLDER = "/dev/shm/"  # noqa: S108 - POSIX shared memory on Linux


def make_memory_private() -> None:
    """Deny other users the regions that this process has open, which hold requests and answers."""
    with suppress(OSError):
        for line in Path("/proc/self/maps").read_text().splitlines():
            file = line.partition(_FOLDER)[2]
            if file and " " not in file:  # not a removed one
                Path(_FOLDER, file).chmod(0o600)
