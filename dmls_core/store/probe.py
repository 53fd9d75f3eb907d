"""Check that a store takes, returns and deletes an object: one that is full can still be read."""

from __future__ import annotations

import secrets

from dmls_core.errors import StoreError
from dmls_core.store import layout
from dmls_core.store.base import Store

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
