"""Objects in S3 or a folder, the layout of keys, and the registry of accepted specs."""

from __future__ import annotations

from dmls_core.store.base import ObjectInfo, Store, check_key
from dmls_core.store.job_record import DataObject, JobRecord
from dmls_core.store.opening import open_store
from dmls_core.store.registry import Registry
from dmls_core.store.run_key import run_key

__all__ = ["DataObject", "JobRecord", "ObjectInfo", "Registry", "Store", "check_key", "open_store", "run_key"]
