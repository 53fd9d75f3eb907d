"""Hashes of files, and errors of those that cannot be read or written."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dmls_core.errors import ObjectMissingError, ServingError, StoreError


def sha256(path: Path) -> str:
    """Return the hex SHA-256 of a file."""
    with path.open("rb") as reading:
        return hashlib.file_digest(reading, "sha256").hexdigest()


@contextmanager
def failing(doing: str) -> Iterator[None]:
    """Turn what the store says (full, gone, read-only) into an error that names the step."""
    try:
        yield
    except ObjectMissingError:
        raise
    except (OSError, StoreError) as error:
        raise ServingError(f"cannot {doing}: {error}") from error
