"""Read the columns of the job table from the store, Airflow's database, and Triton."""

from __future__ import annotations

import json
import logging
import ssl
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

import httpx

from dmls_core.airflow import database
from dmls_core.airflow.database import DagState, Session
from dmls_core.airflow.operations.late_versions import LateVersions
from dmls_core.airflow.task_id import TaskId
from dmls_core.errors import ObjectMissingError, StoreError
from dmls_core.intake.status import Status
from dmls_core.serving.triton.addresses import first_address, parse_address, split_addresses, split_copies
from dmls_core.settings import TRITON_KEY_HEADER
from dmls_core.store import JobRecord, Registry, ServedModel, Store, is_key, layout
from dmls_core.store.registry import Cache, cached
from dmls_core.store.snapshots import Snapshots
from dmls_core.web.services.queue import Wait, read_waits

log = logging.getLogger(__name__)

_THREADS = 3
"""Few: they share one interpreter lock with the requests of users."""

_STATUS_BYTES = 1 << 20

JobKey = tuple[str, str]
"""(Team, job)."""

_VERDICTS = {"steady": 1, "drifted": 2, "decayed": 3}
"""Severity of verdicts; the table shows the worst one of new data, requests and late labels."""

_OUTCOME_TASKS = (TaskId.EVALUATE.value,)
"""Tasks whose return values give the outcome of a run."""

_KEPT_RUNS = 20
_OVERLAP = timedelta(minutes=1)
"""Outcomes are read again this far back: transactions do not commit in the order of their timestamps."""

_TRITON_SECONDS = 2.0

K = TypeVar("K")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SpecColumns:
    """Columns of the table that come from a spec."""

    owner: str
    models: tuple[str, ...]


@dataclass
class StoredJobs:
    """Jobs in the store; a refresh reads only objects that have changed."""

    store: Store
    records: dict[JobKey, JobRecord] = field(default_factory=dict)
    specs: dict[str, SpecColumns] = field(default_factory=dict)
    statuses: dict[JobKey, Status] = field(default_factory=dict)
    served: dict[JobKey, ServedModel] = field(default_factory=dict)
    drift: dict[JobKey, str] = field(default_factory=dict)
    _drift_by_source: dict[tuple[JobKey, str], str] = field(default_factory=dict)
    _record_cache: Cache = field(default_factory=dict)
    _etags: dict[str, str] = field(default_factory=dict)
    _unreadable: set[str] = field(default_factory=set)

    def read_snapshot(self, version: str) -> None:
        """Read all active jobs from one version of the registry, which has few objects."""
        records = Snapshots(self.store).read(version)
        self._record_cache = cached(records)
        for record in records:
            self.records[record.team, record.name] = record

    def refresh(self) -> None:
        """Read what has changed since the last call; raise ``StoreError`` if the store cannot be read."""
        records = Registry(self.store).jobs(self._record_cache)
        self.records = {(record.team, record.name): record for record in records}
        self._unreadable.clear()
        with ThreadPoolExecutor(_THREADS) as threads:
            self._refresh_statuses(threads)
            self._refresh_served(threads)
            self._refresh_drift(threads)
            self._refresh_specs(threads)

    def _refresh_statuses(self, threads: ThreadPoolExecutor) -> None:
        listed: dict[str, tuple[JobKey, str]] = {}
        for info in self.store.list(layout.INCOMING):
            upload = layout.parse_incoming(info.key)
            if upload and upload.filename == layout.STATUS_JSON and is_key(info.key):
                listed[info.key] = (upload.team, upload.job), info.etag
        self._read_changed(threads, listed, self._read_status, self.statuses)

    def _refresh_served(self, threads: ThreadPoolExecutor) -> None:
        listed: dict[str, tuple[JobKey, str]] = {}
        for info in self.store.list(layout.SERVED):
            team, _, job = info.key.removeprefix(layout.SERVED).removesuffix(".json").partition("/")
            listed[info.key] = (team, job), info.etag
        self._read_changed(threads, listed, self._read_served, self.served)

    def _refresh_drift(self, threads: ThreadPoolExecutor) -> None:
        # Every comparison replaces the metrics file of its job and source, so that the ETag changes.
        listed: dict[str, tuple[tuple[JobKey, str], str]] = {}
        for info in self.store.list(layout.METRICS):
            team, _, rest = info.key.removeprefix(layout.METRICS).partition("/")
            job, _, file = rest.partition("/")
            source = "labels" if file == "decay.prom" else file.removeprefix("drift-").removesuffix(".prom")
            if file.endswith(".prom") and source in layout.COMPARED:
                key = layout.latest_comparison(team, job, source, "json")
                listed[key] = ((team, job), source), info.etag
        self._read_changed(threads, listed, self._read_drift, self._drift_by_source)
        self.drift = {}
        for (job_key, _), verdict in sorted(
            self._drift_by_source.items(), key=lambda entry: _VERDICTS.get(entry[1], 0)
        ):
            self.drift[job_key] = verdict

    def _read_changed(
        self,
        threads: ThreadPoolExecutor,
        listed: dict[str, tuple[K, str]],
        read: Callable[[str], T | None],
        values: dict[K, T],
    ) -> None:
        """Read new and changed objects into ``values``, and remove deleted ones."""
        for gone in values.keys() - {key for key, _ in listed.values()}:
            del values[gone]
        changed = [key for key, (_, etag) in listed.items() if self._etags.get(key) != etag]
        for key, value in zip(changed, threads.map(read, changed), strict=True):
            if key in self._unreadable:
                continue  # its value stays, and the next refresh reads it again
            target, self._etags[key] = listed[key]
            if value is None:
                values.pop(target, None)
            else:
                values[target] = value

    def _refresh_specs(self, threads: ThreadPoolExecutor) -> None:
        hashes = sorted({record.spec_sha256 for record in self.records.values()} - self.specs.keys())
        for sha256, summary in zip(hashes, threads.map(self._read_spec, hashes), strict=True):
            if summary:
                self.specs[sha256] = summary

    def _read_status(self, key: str) -> Status | None:
        content = self._json(key)
        try:
            return Status.from_json(content)
        except ValueError:
            return None

    def _read_served(self, key: str) -> ServedModel | None:
        content = self._json(key)
        try:
            return ServedModel.from_json(content)
        except ValueError:
            return None

    def _read_drift(self, key: str) -> str | None:
        content = self._json(key)
        verdict = content.get("verdict") if isinstance(content, dict) else None
        return verdict if isinstance(verdict, str) else None

    def _read_spec(self, sha256: str) -> SpecColumns | None:
        spec = self._json(layout.spec(sha256))
        if not isinstance(spec, dict):
            return None
        models = tuple(str(model["name"]) for model in spec.get("models", ()))
        owner = (spec.get("owner") or {}).get("name") or (spec.get("owner") or {}).get("email") or ""
        return SpecColumns(str(owner), models)

    def _json(self, key: str) -> Any:
        try:
            return json.loads(self.store.read(key, limit=_STATUS_BYTES)[0])
        except ObjectMissingError:
            return None
        except StoreError as error:
            self._unreadable.add(key)
            log.warning("%s cannot be read now: %s", key, error)
            return None
        except (ValueError, RecursionError) as error:
            log.warning("the table of jobs ignores %s: %s", key, error)
            return None


@dataclass
class Outcomes:
    """Holdout scores of a job's latest runs, by run, oldest first, to ``maximize`` or ``minimize``."""

    metric: str = ""
    direction: str = ""
    scores: dict[str, float] = field(default_factory=dict)

    def add(self, run_id: str, value: Mapping[str, Any]) -> None:
        """Add the return value of the task ``evaluate``."""
        self.metric, self.direction = str(value.get("metric", "")), str(value.get("direction", ""))
        if isinstance(value.get("score"), int | float):
            self.scores[run_id] = float(value["score"])
        while len(self.scores) > _KEPT_RUNS:
            del self.scores[next(iter(self.scores))]


@dataclass
class AirflowJobs:
    """Jobs in Airflow's database, read in a few queries; only new outcomes are read."""

    dags: dict[str, DagState] = field(default_factory=dict)
    waits: dict[str, Wait] = field(default_factory=dict)
    outcomes: dict[str, Outcomes] = field(default_factory=dict)
    late: dict[str, str] = field(default_factory=dict)
    _versions: LateVersions = field(default_factory=LateVersions)
    _latest: datetime | None = None

    def find_late(self, session: Session, stored: StoredJobs) -> None:
        """Find why accepted versions have no run: ``late``."""
        waiting = [
            record
            for record in self._versions.without_run(session, stored.records.values())
            if (status := stored.statuses.get((record.team, record.name))) is None
            or status.state == "accepted"
        ]
        self.late = {dag_id: late.reason for dag_id, late in self._versions.find(session, waiting).items()}

    def refresh(self, session: Session) -> None:
        """Read the DAGs, the runs that wait, and the outcomes that are new since the last call."""
        self.dags = database.dag_states(session)
        self.waits = read_waits(session)
        since = self._latest - _OVERLAP if self._latest else None
        for returned in database.return_values(session, _OUTCOME_TASKS, since):
            self._latest = returned.timestamp
            if isinstance(returned.value, Mapping):
                outcomes = self.outcomes.setdefault(returned.dag_id, Outcomes())
                outcomes.add(returned.run_id, returned.value)


def served_versions(addresses: str, key: str) -> dict[str, int]:
    """Return the newest ready version of each model in Triton; ``addresses`` are those of HTTP endpoints.

    The first server is asked, or all of them if each model is placed on some.
    """
    placed = split_addresses(addresses) if split_copies(addresses) else [first_address(addresses)]
    versions: dict[str, int] = {}
    for address in placed:
        for name, version in _versions_at(address, key):
            versions[name] = max(version, versions.get(name, 0))
    return versions


def _versions_at(address: str, key: str) -> Iterator[tuple[str, int]]:
    endpoint = parse_address(address, "http")
    response = httpx.post(
        f"{endpoint.url}/v2/repository/index",
        json={},
        headers={TRITON_KEY_HEADER: key},
        timeout=_TRITON_SECONDS,
        trust_env=False,
        verify=ssl.create_default_context() if endpoint.tls else False,
    )
    for entry in response.raise_for_status().json():
        if entry.get("state") == "READY" and str(entry.get("version", "")).isdigit():
            yield entry["name"], int(entry["version"])


def served_version(model: ServedModel | None, state: str, in_triton: int | None) -> int | None:
    """Return the served version of a job in ``state``, by its record.

    Deployments of earlier releases have no record: Triton knows their version. ``in_triton`` is as of the
    last refresh, which may be before the model was stopped.
    """
    if model:
        return model.version
    return None if state == "stopped" else in_triton
