"""Stores of objects, the layout of their keys, and the registry of accepted specs."""

from __future__ import annotations

from typing import Any

from dmls_core.errors import PlatformError
from dmls_core.store.base import Access, ObjectInfo, Store, check_key, is_key
from dmls_core.store.local import LocalStore
from dmls_core.store.process_failures import (
    ProcessFailure,
    ProcessFailures,
    all_process_failures,
    read_process_failures,
    write_process_failures,
)
from dmls_core.store.registry import DataObject, JobRecord, Registry, run_key
from dmls_core.store.served import ServedModel, delete_served, read_served, write_served

__all__ = [
    "Access",
    "DataObject",
    "JobRecord",
    "ObjectInfo",
    "ProcessFailure",
    "ProcessFailures",
    "Registry",
    "ServedModel",
    "Store",
    "all_process_failures",
    "check_key",
    "delete_served",
    "is_key",
    "open_store",
    "read_process_failures",
    "read_served",
    "run_key",
    "store_class",
    "write_process_failures",
    "write_served",
]


def open_store(url: str, *, hook: Any = None, interactive: bool = False) -> Store:
    """Return the store at a URL such as ``s3://bucket/prefix`` or ``file:///folder``, or a folder's path.

    ``hook`` and ``interactive`` are those of ``Store.from_url``. No request is sent.

    Raises:
        PlatformError: no store is registered for the URL's scheme, or the URL is wrong.
    """
    return store_class(url).from_url(url, hook=hook, interactive=interactive)


def store_class(url: str) -> type[Store]:
    """Return the class that is registered in ``dmls.stores`` for the scheme of a URL; a path is a folder.

    ``fsspec`` also serves ``fsspec+memory://``, unless that is registered itself.
    """
    scheme, separator, _ = url.partition("://")
    if url and not separator:
        return LocalStore
    # Imported here: importlib.metadata is slow, and a folder needs none of it.
    from dmls_core import extensions

    registered = extensions.names("dmls.stores")
    for name in (scheme, scheme.partition("+")[0]):
        if separator and name in registered:
            opened: type[Store] = extensions.load("dmls.stores", name)
            return opened
    raise PlatformError(
        f"{url!r} is not the URL of a store: give s3://bucket/prefix or a folder (DMLS_ROOT); "
        f"installed schemes: {', '.join(registered)}"
    )
