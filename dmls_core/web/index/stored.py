"""What the store says of jobs: the registry, answers beside drops, drift."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dmls_core.errors import ObjectMissingError, StoreError
from dmls_core.intake.status import Status
from dmls_core.store import JobRecord, Registry, Store, layout
from dmls_core.store.registry import Cache

log = logging.getLogger(__name__)

THREADS = 10
"""As many as the S3 client has connections."""

STATUS_BYTES = 1 << 20
DRIFT_FILE = "drift.json"

Place = tuple[str, str]
"""(Team, job)."""

VERDICTS = {"steady": 1, "drifted": 2}
"""The higher one is shown where new data and requests differ."""

K = TypeVar("K")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SpecGist:
    """What the table shows of a spec."""

    owner: str
    models: tuple[str, ...]


@dataclass
class StoredJobs:
    """What was read of the store, kept so that only what has changed is read again."""

    store: Store
    records: dict[Place, JobRecord] = field(default_factory=dict)
    specs: dict[str, SpecGist] = field(default_factory=dict)
    statuses: dict[Place, Status] = field(default_factory=dict)
    drift: dict[Place, str] = field(default_factory=dict)
    _drifts: dict[tuple[Place, str], str] = field(default_factory=dict)
    _records: Cache = field(default_factory=dict)
    _seen: dict[str, str] = field(default_factory=dict)
    _unread: set[str] = field(default_factory=set)

    def read_snapshot(self, version: str) -> None:
        """Take all active jobs from one version of the registry: one object, whatever their number.

        Raises:
            StoreError: it cannot be read.
        """
        snapshot = json.loads(self.store.get(layout.snapshot(version)))
        for entry in snapshot["jobs"]:
            record = JobRecord.from_json(entry)
            self.records[record.team, record.name] = record

    def refresh(self) -> None:
        """Read what has changed since the last call.

        Raises:
            StoreError: the store does not answer.
        """
        found = Registry(self.store).jobs(self._records)
        self.records = {(record.team, record.name): record for record in found}
        self._unread.clear()
        with ThreadPoolExecutor(THREADS) as threads:
            self._refresh_statuses(threads)
            self._refresh_drift(threads)
            self._refresh_specs(threads)

    def _refresh_statuses(self, threads: ThreadPoolExecutor) -> None:
        listed: dict[str, tuple[Place, str]] = {}
        for info in self.store.list(layout.INCOMING):
            drop = layout.parse_incoming(info.key)
            if drop and drop.filename == layout.STATUS_JSON:
                listed[info.key] = (drop.team, drop.job), info.etag
        self._take(threads, listed, self._read_status, self.statuses)

    def _refresh_drift(self, threads: ThreadPoolExecutor) -> None:
        # Of each job and source, Prometheus is told of the latest comparison alone: one object that changes.
        listed: dict[str, tuple[tuple[Place, str], str]] = {}
        for info in self.store.list(layout.METRICS):
            team, _, rest = info.key.removeprefix(layout.METRICS).partition("/")
            job, _, file = rest.partition("/")
            source = file.removeprefix("drift-").removesuffix(".prom")
            if file.startswith("drift-") and source in layout.DRIFT_FOLDERS:
                key = layout.latest_drift(team, job, source, DRIFT_FILE)
                listed[key] = ((team, job), source), info.etag
        self._take(threads, listed, self._read_drift, self._drifts)
        self.drift = {}
        for (place, _), verdict in sorted(self._drifts.items(), key=lambda entry: VERDICTS.get(entry[1], 0)):
            self.drift[place] = verdict

    def _take(
        self,
        threads: ThreadPoolExecutor,
        listed: dict[str, tuple[K, str]],
        read: Callable[[str], T | None],
        known: dict[K, T],
    ) -> None:
        """Read the objects that are new or changed into ``known``; forget those that are gone."""
        for gone in known.keys() - {place for place, _ in listed.values()}:
            del known[gone]
        changed = [key for key, (_, etag) in listed.items() if self._seen.get(key) != etag]
        for key, value in zip(changed, threads.map(read, changed), strict=True):
            if key in self._unread:
                continue  # the store did not give it: what is known stays, and the next refresh asks again
            place, self._seen[key] = listed[key]
            if value is None:
                known.pop(place, None)
            else:
                known[place] = value

    def _refresh_specs(self, threads: ThreadPoolExecutor) -> None:
        wanted = {record.spec_sha256 for record in self.records.values()} - self.specs.keys()
        shas = sorted(wanted)
        for sha, gist in zip(shas, threads.map(self._read_spec, shas), strict=True):
            if gist:
                self.specs[sha] = gist

    def _read_status(self, key: str) -> Status | None:
        content = self._json(key)
        try:
            return Status.from_json(content)
        except ValueError:
            return None

    def _read_drift(self, key: str) -> str | None:
        content = self._json(key)
        verdict = content.get("verdict") if isinstance(content, dict) else None
        return verdict if isinstance(verdict, str) else None

    def _read_spec(self, sha256: str) -> SpecGist | None:
        spec = self._json(layout.spec(sha256))
        if not isinstance(spec, dict):
            return None
        models = tuple(str(model["name"]) for model in spec.get("models", ()))
        owner = (spec.get("owner") or {}).get("name") or (spec.get("owner") or {}).get("email") or ""
        return SpecGist(str(owner), models)

    def _json(self, key: str) -> Any:
        try:
            return json.loads(self.store.read(key, limit=STATUS_BYTES)[0])
        except ObjectMissingError:
            return None
        except StoreError as error:
            self._unread.add(key)
            log.warning("%s cannot be read now: %s", key, error)
            return None
        except (ValueError, RecursionError) as error:
            log.warning("%s is left out of the table of jobs: %s", key, error)
            return None
