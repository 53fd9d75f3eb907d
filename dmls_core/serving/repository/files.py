"""Files of a model repository: listed, copied with a check, and replaced so that Triton notices."""

from __future__ import annotations

import hashlib
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, ClassVar

from dmls_core.errors import ObjectMissingError, ServingError, StoreError
from dmls_core.serving.deployment.signature import UNSIGNED
from dmls_core.serving.triton.model_config import BOOKKEEPING, check_model_name
from dmls_core.store import Store
from dmls_core.store.base import file_sha256

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


def recorded_checksums(record: dict[str, Any], name: str, version: int) -> dict[str, str]:
    """Return the checksums in a version's ``dmls.json``; raise ``ServingError`` if it is damaged."""
    sums = record.get("sha256")
    if (record.get("schema"), record.get("version")) != (1, version) or not isinstance(sums, dict):
        raise ServingError(f"dmls.json of version {version} of {name} is damaged; train the model again")
    return sums


def lock_key(name: str) -> str:
    """Return the key of the lock of a model's publisher."""
    return f"{BOOKKEEPING}/{check_model_name(name)}/lock"


@contextmanager
def failing(doing: str) -> Iterator[None]:
    """Turn an error of the store (full, gone, read-only) into a ``ServingError`` that names the step."""
    try:
        yield
    except ObjectMissingError:
        raise
    except (OSError, StoreError) as error:
        raise ServingError(f"cannot {doing}: {error}") from error


class RepositoryFiles(ABC):
    """Files in the store of a model repository, and the lock of each model's publisher."""

    in_place: ClassVar[bool]
    """Whether Triton reads the repository itself, so that its processes find files written later."""

    def __init__(self, store: Store) -> None:
        """Bind to a store; nothing is read yet."""
        self._store = store

    @abstractmethod
    def lock(self, name: str, timeout: float) -> AbstractContextManager[None]:
        """Keep other publishers of a model out; BusyError if one held the lock for ``timeout`` seconds."""

    @abstractmethod
    def check_lock(self, name: str) -> None:
        """Raise LostError if this publisher has lost the model's lock."""

    @abstractmethod
    def local_copy(self, name: str, version: int) -> AbstractContextManager[Path]:
        """Return a folder on this machine with a version's files."""

    @abstractmethod
    def remove(self, folder: str) -> None:
        """Remove a folder's files, its configuration first: Triton ignores the rest from then on."""

    @abstractmethod
    def _list(self, name: str) -> list[str]:
        """Return the files in a model's folders, such as ``1/encoder.json``."""

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
        url = f"{self._store.url}/{key}"
        with failing(f"read {url}"):
            try:
                with self._store.open(key) as stream:
                    digest = file_sha256(stream)
            except ObjectMissingError:
                raise ServingError(f"{url} is missing") from None
        if digest != expected:
            raise ServingError(
                f"{url} is damaged: its SHA-256 is {digest}, expected {expected}; deploy it again"
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
