"""Snapshots of sources in the store: named by their content, deleted 60 to 90 days after their last use."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from dmls_core.store import layout
from dmls_core.store.base import ObjectInfo, Store

KEEP = timedelta(days=90)
"""Age from which a snapshot is deleted."""

_RENEW = timedelta(days=30)
"""Age from which a snapshot that is used again is written again, so that it stays."""


def find_snapshot(store: Store, key: str) -> ObjectInfo | None:
    """Return a snapshot that need not be written again, if there is one."""
    info = store.head(key)
    return info if info and datetime.now(UTC) - info.modified < _RENEW else None


def delete_old_snapshots(store: Store, now: datetime) -> int:
    """Delete old snapshots, and return the number of deleted objects."""
    old = [info.key for info in store.list(layout.SOURCES) if now - info.modified > KEEP]
    for key in old:
        store.delete(key)
    return len(old)
