"""The identity of a run: same spec, same data, same interval, same run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from datetime import UTC, datetime


def run_key(spec_sha256: str, etags: Iterable[str], interval: tuple[datetime, datetime] | None = None) -> str:
    """Return 16 hex digits that name a run.

    Args:
        spec_sha256: hash of the canonical spec.
        etags: of the data objects, in any order.
        interval: data interval of a scheduled or backfilled run; both ends must know their time zone.
    """
    ends = [moment.astimezone(UTC).isoformat() for moment in interval] if interval else None
    identity = json.dumps([spec_sha256, sorted(etags), ends], separators=(",", ":"))
    return hashlib.sha256(identity.encode()).hexdigest()[:16]
