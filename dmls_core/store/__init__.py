"""Stores of objects, the layout of their keys, and the registry of accepted specs."""

from __future__ import annotations

from dmls_core.store.base import ObjectInfo, Store, check_key
from dmls_core.store.opening import open_store, store_class
from dmls_core.store.registry import DataObject, JobRecord, Registry, run_key

__all__ = [
    "DataObject",
    "JobRecord",
    "ObjectInfo",
    "Registry",
    "Store",
    "check_key",
    "open_store",
    "run_key",
    "store_class",
]
