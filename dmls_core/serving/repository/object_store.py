"""A model repository in an object store such as S3."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dmls_core.serving.repository.files import RepositoryFiles, failing, lock_key
from dmls_core.serving.repository.locks import PublisherLease, lease
from dmls_core.serving.triton.model_config import CONFIG_FILE
from dmls_core.store import Store


class ObjectStoreFiles(RepositoryFiles):
    """Objects, of which Triton copies a model's when it loads it; a publisher holds a lease."""

    in_place = False

    def __init__(self, store: Store) -> None:
        """Bind to a store; no lease is held yet."""
        super().__init__(store)
        self._leases: dict[str, PublisherLease] = {}

    @contextmanager
    def lock(self, name: str, timeout: float) -> Iterator[None]:
        """Hold a lease, and renew it."""
        with failing(f"lock {name}"), lease(self._store, lock_key(name), name, timeout) as self._leases[name]:
            try:
                yield
            finally:
                del self._leases[name]

    def check_lock(self, name: str) -> None:
        """Raise LostError if the lease expired, or another publisher took it."""
        if name in self._leases:
            self._leases[name].check(name)

    @contextmanager
    def local_copy(self, name: str, version: int) -> Iterator[Path]:
        """Yield a temporary folder with copies."""
        with tempfile.TemporaryDirectory(prefix="dmls-version-") as scratch:
            with failing(f"read version {version} of {name}"):
                for file in self.numbered_folders(name).get(version, ()):
                    self._store.download(f"{name}/{version}/{file}", Path(scratch) / file)
            yield Path(scratch)

    def remove(self, folder: str) -> None:
        """Delete the folder's objects."""
        keys = [info.key for info in self._store.list(f"{folder}/")]
        for key in sorted(keys, key=lambda key: not key.endswith(f"/{CONFIG_FILE}")):
            self._store.delete(key)

    def _list(self, name: str) -> list[str]:
        return [info.key.removeprefix(f"{name}/") for info in self._store.list(f"{name}/")]
