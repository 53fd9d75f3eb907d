"""Files of a model repository: list, hash, and errors that name the step."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dmls_core.errors import ObjectMissingError, ServingError, StoreError
from dmls_core.store import Store
from dmls_core.store.local import LocalStore


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


def numbered_folders(store: Store, name: str) -> dict[int, set[str]]:
    """Return the numbered folders of a model in Triton, with the names of their files."""
    folders: dict[int, set[str]] = {}
    for file in _files(store, name):
        if match := re.fullmatch(r"([1-9][0-9]*)/(.+)", file):
            folders.setdefault(int(match[1]), set()).add(match[2])
    return folders


def _files(store: Store, name: str) -> list[str]:
    """Return the files of a model in Triton; a store would read every file of a folder for its ETag."""
    if isinstance(store, LocalStore):
        folder = store.root / name
        return [path.relative_to(folder).as_posix() for path in folder.glob("*/*")]
    return [info.key.removeprefix(f"{name}/") for info in store.list(f"{name}/")]
