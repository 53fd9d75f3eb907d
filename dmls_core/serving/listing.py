"""What lies in the folder of a model in Triton's repository."""

from __future__ import annotations

import re

from dmls_core.store import Store
from dmls_core.store.local import LocalStore


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
