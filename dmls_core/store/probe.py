"""Check that a store takes, returns and deletes an object: one that is full can still be read."""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor

from dmls_core.errors import StoreError
from dmls_core.store import layout
from dmls_core.store.base import Store

FOLDERS = 32
"""Folders that are probed: SeaweedFS has 8 databases, and the hash of a folder's name chooses one."""

_THREADS = 8

_LISTED = (layout.INCOMING, layout.JOBS)
"""What the platform lists all the time."""

UNREACHABLE_HINT = "start the store; if it runs, check its address and the credentials of DMLS"

UNWRITABLE_HINT = (
    "free space on the store's disk; if there is enough, allow the credentials of DMLS to write, read and "
    "delete objects"
)


def write_read_delete(store: Store, folder: str = "") -> None:
    """Write, read and delete an object; raise ``StoreError`` if the store refuses any of them.

    ``folder`` is empty, or ends with a slash.
    """
    key, content = f"{layout.PROBES}{folder}{secrets.token_hex(8)}", b"written by DMLS to probe the store"
    store.put(key, content)
    if store.get(key) != content:
        raise StoreError(f"{key} does not contain what was written")
    store.delete(key)


def refusal(store: Store, number: int) -> str:
    """Return why a store refuses to write to one of ``FOLDERS`` folders; empty if it does not."""
    try:
        write_read_delete(store, f"folder-{number:02d}/")
    except StoreError as error:
        return str(error)
    return ""


def refusals(store: Store) -> list[str]:
    """Return why a store refuses to write, for each of ``FOLDERS`` folders to which it does."""
    with ThreadPoolExecutor(_THREADS) as threads:
        return [
            reason for reason in threads.map(lambda number: refusal(store, number), range(FOLDERS)) if reason
        ]


def unlisted(store: Store) -> list[str]:
    """Return why a store does not list what it has, for each of ``_LISTED`` that it does not list."""
    failures = []
    for prefix in _LISTED:
        try:
            next(iter(store.list(prefix)), None)
        except StoreError as error:
            failures.append(str(error))
    return failures
