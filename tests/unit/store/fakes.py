"""What the registry is given in tests."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime

from dmls_core.store import ObjectInfo

NOW = datetime(2026, 5, 4, 3, 2, 1, 123456, tzinfo=UTC)


@dataclass(frozen=True)
class FakeSpec:
    content: str

    def canonical(self) -> bytes:
        return json.dumps({"schema": 1, "content": self.content}).encode()

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.canonical()).hexdigest()


def data(etag: str, name: str = "iris.csv", job: str = "growth/iris") -> ObjectInfo:
    return ObjectInfo(f"incoming/{job}/{name}", 10, etag, NOW)
