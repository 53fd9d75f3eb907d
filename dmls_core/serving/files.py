"""Hashes of files."""

from __future__ import annotations

import hashlib
from pathlib import Path


def sha256(path: Path) -> str:
    """Return the hex SHA-256 of a file."""
    with path.open("rb") as reading:
        return hashlib.file_digest(reading, "sha256").hexdigest()
