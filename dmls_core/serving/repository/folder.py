"""A model repository in a local or shared folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dmls_core.serving.repository.files import RepositoryFiles, failing, lock_key
from dmls_core.serving.repository.locks import file_lock
from dmls_core.serving.triton.model_config import CONFIG_FILE
from dmls_core.store import Store


class FolderFiles(RepositoryFiles):
    """Files in a folder that Triton reads too; a publisher holds the lock of a file."""

    in_place = True

    def __init__(self, store: Store) -> None:
        """Bind to a store whose URL is a path."""
        super().__init__(store)
        self._root = Path(store.url)

    @contextmanager
    def lock(self, name: str, timeout: float) -> Iterator[None]:
        """Hold the lock of the model's file."""
        path = self._root / lock_key(name)
        with failing(f"lock {name}"):
            path.parent.mkdir(parents=True, exist_ok=True)
        with file_lock(path, name, timeout):
            yield

    def check_lock(self, name: str) -> None:
        """Do nothing: only the process itself can give up a file's lock."""

    @contextmanager
    def local_copy(self, name: str, version: int) -> Iterator[Path]:
        """Yield the version's own folder."""
        yield self._root / name / str(version)

    def remove(self, folder: str) -> None:
        """Remove the folder itself."""
        self._store.delete(f"{folder}/{CONFIG_FILE}")
        shutil.rmtree(self._root / folder, ignore_errors=True)

    def _list(self, name: str) -> list[str]:
        # Listing the store would read every file for its ETag.
        folder = self._root / name
        return [path.relative_to(folder).as_posix() for path in folder.glob("*/*")]
