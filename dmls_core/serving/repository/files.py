"""Files of a model repository: listed, copied with a check, and replaced so that Triton notices."""

from __future__ import annotations

import hashlib
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dmls_core.errors import ObjectMissingError, ServingError, StoreError
from dmls_core.serving.deployment.signature import UNSIGNED
from dmls_core.serving.triton.model_config import CONFIG_FILE
from dmls_core.store import Store
from dmls_core.store.base import file_sha256
from dmls_core.store.local import LocalStore

VERSION_FILE = "dmls.json"
"""Record of a version: the SHA-256 of its files."""


def sha256(path: Path) -> str:
    """Return the hex SHA-256 of a file."""
    with path.open("rb") as reading:
        return hashlib.file_digest(reading, "sha256").hexdigest()


def checksums(folder: Path, needed: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of each file of a model by its name; the ``needed`` ones must be there."""
    names = {*needed, *(path.name for path in folder.iterdir())} - {*UNSIGNED}
    return {name: sha256(folder / name) for name in sorted(names)}


def recorded_checksums(about: dict[str, Any], name: str, version: int) -> dict[str, str]:
    """Return the checksums in a version's ``dmls.json``; raise ``ServingError`` if it is damaged."""
    sums = about.get("sha256")
    if (about.get("schema"), about.get("version")) != (1, version) or not isinstance(sums, dict):
        raise ServingError(f"dmls.json of version {version} of {name} is damaged; train the model again")
    return sums


@contextmanager
def failing(doing: str) -> Iterator[None]:
    """Turn an error of the store (full, gone, read-only) into a ``ServingError`` that names the step."""
    try:
        yield
    except ObjectMissingError:
        raise
    except (OSError, StoreError) as error:
        raise ServingError(f"cannot {doing}: {error}") from error


class RepositoryFiles:
    """Files in the store of a model repository."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def numbered_folders(self, name: str) -> dict[int, set[str]]:
        """Return the numbered folders of a model in Triton, with the names of their files."""
        folders: dict[int, set[str]] = {}
        for file in self._list(name):
            if match := re.fullmatch(r"([1-9][0-9]*)/(.+)", file):
                folders.setdefault(int(match[1]), set()).add(match[2])
        return folders

    def copy(self, source: Path, key: str, expected: str) -> None:
        """Copy a file; raise ServingError if the copy's SHA-256 is not ``expected``."""
        self._store.upload(key, source)
        self.check(key, expected)

    def check(self, key: str, expected: str) -> None:
        """Raise ServingError if the file is missing, or its SHA-256 is not ``expected``."""
        place = f"{self._store.url}/{key}"
        with failing(f"read {place}"):
            try:
                with self._store.open(key) as stream:
                    found = file_sha256(stream)
            except ObjectMissingError:
                raise ServingError(f"{place} is missing") from None
        if found != expected:
            raise ServingError(
                f"{place} is damaged: its SHA-256 is {found}, expected {expected}; deploy it again"
            )

    def replace(self, key: str, text: str) -> None:
        """Write a configuration so that Triton notices.

        Triton compares modification times, and S3 gives whole seconds: it would miss a second change within
        one.
        """
        content = text.encode()
        before = self._store.head(key)
        if before is not None and self._store.get(key) == content:
            return
        self._store.put(key, content)
        while before is not None and (now := self._store.head(key)) and now.modified <= before.modified:
            time.sleep(0.2)
            self._store.put(key, content)

    def remove(self, folder: str) -> None:
        """Remove a folder's files, its configuration first: Triton ignores the rest from then on."""
        if isinstance(self._store, LocalStore):
            self._store.delete(f"{folder}/{CONFIG_FILE}")
            shutil.rmtree(self._store.root / folder, ignore_errors=True)
            return
        keys = [info.key for info in self._store.list(f"{folder}/")]
        for key in sorted(keys, key=lambda key: not key.endswith(f"/{CONFIG_FILE}")):
            self._store.delete(key)

    def _list(self, name: str) -> list[str]:
        """Return a model's files; listing a local store would read every file for its ETag."""
        if isinstance(self._store, LocalStore):
            folder = self._store.root / name
            return [path.relative_to(folder).as_posix() for path in folder.glob("*/*")]
        return [info.key.removeprefix(f"{name}/") for info in self._store.list(f"{name}/")]
