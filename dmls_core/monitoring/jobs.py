"""The jobs that a monitor run watches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from dmls_core.hardware import parse_memory
from dmls_core.sandbox import Limits
from dmls_core.store import JobRecord, Registry, Store
from dmls_core.store.registry import cached

_THREADS = 16

KnownJob = tuple[JobRecord, Mapping[str, Any]]
"""A job's record and its spec as JSON."""


@dataclass(frozen=True, slots=True)
class MonitoredJob:
    """An active job whose spec (as JSON) has a ``[drift]`` table."""

    team: str
    name: str
    spec: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.team}/{self.name}"

    def limits(self, base: Limits) -> Limits:
        """Return the limits of the sandbox, with more memory if the spec asks for more."""
        memory = parse_memory(self.spec["resources"]["memory"] or "0")
        return replace(base, memory=max(base.memory, memory))


def monitored_jobs(store: Store, cached_jobs: Iterable[KnownJob] = ()) -> list[MonitoredJob]:
    """Return the active jobs with ``[drift]`` in their specs."""
    registry, cached_jobs = Registry(store), list(cached_jobs)
    cache = cached(record for record, _ in cached_jobs)
    records = [record for record in registry.jobs(cache) if record.state == "active"]
    specs = {record.spec_sha256: spec for record, spec in cached_jobs}
    shas = sorted({record.spec_sha256 for record in records} - specs.keys())
    with ThreadPoolExecutor(_THREADS) as threads:
        specs.update(zip(shas, threads.map(registry.spec, shas), strict=True))
    return [
        MonitoredJob(record.team, record.name, specs[record.spec_sha256])
        for record in records
        if specs[record.spec_sha256].get("drift") is not None
    ]
