"""Writing files so that a power cut leaves the old content or the new one."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path


def copy_synced(source: Path, target: Path) -> None:
    """Copy a file's content onto the disk itself."""
    with source.open("rb") as reading, target.open("wb") as writing:
        shutil.copyfileobj(reading, writing, 1 << 20)
        writing.flush()
        os.fsync(writing.fileno())


def write_synced(target: Path, text: str) -> None:
    """Write a text file onto the disk itself."""
    with target.open("w") as writing:
        writing.write(text)
        writing.flush()
        os.fsync(writing.fileno())


def sync_folder(folder: Path) -> None:
    """Make a folder's entries last: a rename into it is durable afterwards."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """Return the hex SHA-256 of a file."""
    with path.open("rb") as reading:
        return hashlib.file_digest(reading, "sha256").hexdigest()
