"""The registry of accepted specs: job records, their versions, and the key of a run."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from collections.abc import Iterable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Protocol
from uuid import uuid4

from dmls_core.errors import ConflictError, NotFoundError, ObjectMissingError, StoreError
from dmls_core.store import layout
from dmls_core.store.base import ObjectInfo, Store

logger = logging.getLogger(__name__)

_SCHEMA = 1

_THREADS = 16
_ATTEMPTS = 8

MAX_VERSIONS = 100

MAX_CHANGES = 50
"""Latest changes that are named. A reader that has missed more lists all records."""


@dataclass(frozen=True, slots=True)
class DataObject:
    """One data object of a job, pinned to the content that was admitted."""

    key: str
    etag: str
    size: int


@dataclass(frozen=True, slots=True)
class JobRecord:
    """The current accepted version of a job.

    Attributes:
        data: sorted by key.
        run_key: of the run that this version requests.
        admitted: ISO time in UTC with microseconds.
        version: 1, 2, 3, ... counts accepted changes.
        state: "retired" after the submission was deleted.
    """

    team: str
    name: str
    spec_sha256: str
    data: tuple[DataObject, ...]
    run_key: str
    admitted: str
    version: int
    state: Literal["active", "retired"] = "active"
    fingerprint: str = ""

    @property
    def admitted_at(self) -> datetime:
        """``admitted`` as a time in UTC."""
        return datetime.fromisoformat(self.admitted)

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object that the registry keeps."""
        # asdict() costs ten times as much, and a registry has thousands of records.
        values = {name: getattr(self, name) for name in _FIELDS}
        data = [{"key": item.key, "etag": item.etag, "size": item.size} for item in self.data]
        return {"schema": _SCHEMA, **values, "data": data}

    @classmethod
    def from_json(cls, fields: object) -> JobRecord:
        """Return the record of ``as_json``; raise ``ValueError`` if it is none, or has a later schema."""
        if not isinstance(fields, dict) or fields.get("schema") != _SCHEMA:
            raise ValueError("this is not a job record, or one with an unsupported schema")
        try:
            values = {name: fields[name] for name in _FIELDS}
            record = cls(**values | {"data": tuple(DataObject(**item) for item in values["data"])})
            texts = record.team, record.name, record.spec_sha256, record.run_key, record.fingerprint
            "".join((*texts, *(item.key for item in record.data)))
            if type(record.version) is not int or record.admitted_at.tzinfo is None:
                raise ValueError(
                    f"not a job record: version {record.version!r}, admitted {record.admitted!r}"
                )
        except (TypeError, KeyError) as error:
            raise ValueError(f"not a job record: {error}") from error
        return record


_FIELDS = tuple(field.name for field in dataclasses.fields(JobRecord))
"""Computed once, since a registry has thousands of records."""


def run_key(spec_sha256: str, etags: Iterable[str], interval: tuple[datetime, datetime] | None = None) -> str:
    """Return the key of a run, 16 hex digits: same spec, ETags (in any order) and interval, same run."""
    ends = [moment.astimezone(UTC).isoformat() for moment in interval] if interval else None
    identity = json.dumps([spec_sha256, sorted(etags), ends], separators=(",", ":"))
    return hashlib.sha256(identity.encode()).hexdigest()[:16]


class AcceptableSpec(Protocol):
    """The interface of a validated spec that the registry requires."""

    @property
    def sha256(self) -> str:
        """Hash of the canonical JSON."""

    def canonical(self) -> bytes:
        """Return the canonical JSON, with every default."""


Cache = MutableMapping[str, tuple[str, JobRecord]]
"""Record's key -> ETag and record, so that unchanged records are not fetched again."""


class Registry:
    """Accepted specs (immutable) and job records (written conditionally) in a store."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def job(self, team: str, name: str) -> JobRecord | None:
        """Return a job's current record, active or retired; ``None`` if it was never accepted."""
        entry = self._read(layout.job_record(team, name))
        return entry[0] if entry else None

    def jobs(
        self,
        cache: Cache | None = None,
        faults: dict[str, str] | None = None,
        changed: Iterable[str] | None = None,
    ) -> list[JobRecord]:
        """Return all current records, sorted by key. Callers keep ``cache``.

        For an unreadable record, return the one in ``cache``, if any; ``faults`` gets its key and the error.
        ``changed`` has the keys of all records that have changed since ``cache`` was current; without it, the
        records are listed.
        """
        cache = {} if cache is None else cache
        faults = {} if faults is None else faults
        faults.clear()
        if changed is None:
            listing = {info.key: info.etag for info in self.store.list(layout.JOBS)}
            for key in set(cache) - set(listing):
                del cache[key]
            changed = [key for key, etag in listing.items() if key not in cache or cache[key][0] != etag]
        changed = list(changed)
        with ThreadPoolExecutor(_THREADS) as threads:
            for key, result in zip(changed, threads.map(self._read_or_explain, changed), strict=True):
                if isinstance(result, str):
                    faults[key] = result
                elif result:
                    cache[key] = (result[1], result[0])
                else:
                    cache.pop(key, None)
        return [cache[key][1] for key in sorted(cache)]

    def change_mark(self) -> str:
        """Return what differs after each change of a record; empty before the first one."""
        info = self.store.head(layout.CHANGE)
        return info.etag if info else ""

    def changes(self) -> dict[str, str]:
        """Return the ids of the latest changes, oldest first, each with the key of the changed record."""
        return self._changes()[0]

    def versions(self, team: str, name: str) -> list[JobRecord]:
        """Return the latest ``MAX_VERSIONS`` accepted versions of a job, newest first."""
        keys = sorted(info.key for info in self.store.list(layout.versions_folder(team, name)))
        with ThreadPoolExecutor(_THREADS) as threads:
            read = threads.map(self._read_or_explain, keys[-MAX_VERSIONS:])
            records = [item[0] for item in read if item and not isinstance(item, str)]
        if current := self.job(team, name):
            records = [record for record in records if record.version < current.version] + [current]
        return records[-MAX_VERSIONS:][::-1]

    def spec(self, sha256: str) -> dict[str, Any]:
        """Return an accepted spec's JSON; raise ``StoreError`` if it is missing or damaged."""
        document = self.store.get(layout.spec(sha256))
        if hashlib.sha256(document).hexdigest() != sha256:
            raise StoreError(f"the accepted spec {sha256} is damaged; upload the spec again")
        spec: dict[str, Any] = json.loads(document)
        return spec

    def accept(
        self,
        spec: AcceptableSpec,
        team: str,
        name: str,
        data: Iterable[ObjectInfo],
        admitted: datetime,
        fingerprint: str = "",
    ) -> JobRecord:
        """Make a submission the current version of its job, and return the record of this content.

        The same spec and data again change nothing. Of concurrent calls with the same content, one writes a
        version and all return it. ``admitted`` is recorded if this is a new version; if a clock was set back,
        one microsecond after the current version's, since Airflow orders a DAG's runs by time.

        Raises:
            ConflictError: other writers kept changing the record.
        """
        pinned = tuple(sorted((DataObject(d.key, d.etag, d.size) for d in data), key=lambda d: d.key))
        accepted = JobRecord(
            team=team,
            name=name,
            spec_sha256=spec.sha256,
            data=pinned,
            run_key=run_key(spec.sha256, (d.etag for d in pinned)),
            admitted=admitted.astimezone(UTC).isoformat(timespec="microseconds"),
            version=1,
            fingerprint=fingerprint,
        )
        self._keep(spec)
        key = layout.job_record(team, name)
        for _ in range(_ATTEMPTS):
            stored = self._read(key)
            try:
                if stored is None:
                    # Not 1 after a record was deleted: Airflow has runs of the versions before.
                    accepted = replace(accepted, version=self._last_kept(team, name) + 1)
                    self.store.create(key, _document(accepted))
                    self._mark_change(key)
                    self._keep_version(accepted)
                    return accepted
                current, etag = stored
                if current.state == "active" and current.run_key == accepted.run_key:
                    return current
                later = max(admitted.astimezone(UTC), current.admitted_at + timedelta(microseconds=1))
                accepted = replace(
                    accepted,
                    admitted=later.isoformat(timespec="microseconds"),
                    version=current.version + 1,
                )
                self._keep_version(current)
                self.store.replace(key, _document(accepted), etag)
            except ConflictError:
                continue
            self._mark_change(key)
            self._keep_version(accepted)
            return accepted
        raise ConflictError(f"cannot accept {team}/{name}: other writers keep changing its record; try again")

    def postpone(self, record: JobRecord, after: datetime) -> JobRecord | None:
        """Move the admission of a current version to just after a time; ``None`` if it is not current."""
        later = replace(
            record,
            admitted=(after.astimezone(UTC) + timedelta(microseconds=1)).isoformat(timespec="microseconds"),
        )
        key = layout.job_record(record.team, record.name)
        stored = self._read(key)
        if stored is None or stored[0] != record:
            return None
        try:
            self.store.replace(key, _document(later), stored[1])
        except ConflictError:
            return None
        self._mark_change(key)
        return later

    def retire(self, team: str, name: str) -> JobRecord:
        """Mark a job as retired by its owner; its history stays.

        Raises:
            NotFoundError: the job does not exist.
            ConflictError: other writers kept changing the record.
        """
        key = layout.job_record(team, name)
        for _ in range(_ATTEMPTS):
            stored = self._read(key)
            if stored is None:
                raise NotFoundError(f"there is no job {team}/{name}")
            current, etag = stored
            if current.state == "retired":
                return current
            retired = replace(current, state="retired")
            try:
                self.store.replace(key, _document(retired), etag)
            except ConflictError:
                continue
            self._mark_change(key)
            return retired
        raise ConflictError(f"cannot retire {team}/{name}: other writers keep changing its record; try again")

    def _mark_change(self, key: str) -> None:
        """Name a record that was changed, so that readers need not list all of them to know."""
        for _ in range(_ATTEMPTS):
            changes, etag = self._changes()
            latest = [*changes.items(), (uuid4().hex, key)][-MAX_CHANGES:]
            content = json.dumps({"schema": _SCHEMA, "changes": dict(latest)}).encode()
            with suppress(ConflictError):
                if etag:
                    self.store.replace(layout.CHANGE, content, etag)
                else:
                    self.store.create(layout.CHANGE, content)
                return
        # Other writers were faster each time: without what readers know, they list all records.
        self.store.put(layout.CHANGE, json.dumps({"schema": _SCHEMA, "changes": {uuid4().hex: key}}).encode())

    def _changes(self) -> tuple[dict[str, str], str]:
        """Return ``changes``, none of an earlier release, and the ETag of their object, empty without one."""
        try:
            document, info = self.store.read(layout.CHANGE)
        except ObjectMissingError:
            return {}, ""
        try:
            changes = json.loads(document)["changes"]
            return {str(change): str(key) for change, key in changes.items()}, info.etag
        except (ValueError, TypeError, KeyError, AttributeError):
            return {}, info.etag

    def _last_kept(self, team: str, name: str) -> int:
        """Return the number of the newest version of which there is a copy, or 0."""
        folder = layout.versions_folder(team, name)
        keys = [info.key.removeprefix(folder) for info in self.store.list(folder)]
        return max((int(key[:8]) for key in keys if key[:8].isdecimal()), default=0)

    def _keep_version(self, record: JobRecord) -> None:
        """Keep a copy of a version: of a new one, and of the one before in case a crash prevented it."""
        try:
            self.store.create(layout.version(record.team, record.name, record.version), _document(record))
        except ConflictError:
            return  # another writer has stored it already

    def _keep(self, spec: AcceptableSpec) -> None:
        try:
            self.store.create(layout.spec(spec.sha256), spec.canonical())
        except ConflictError:
            return  # addressed by content: the existing object is the same

    def _read(self, key: str) -> tuple[JobRecord, str] | None:
        try:
            document, info = self.store.read(key)
        except ObjectMissingError:
            return None
        try:
            record = JobRecord.from_json(json.loads(document))
            _check_key(key, record)
        except ValueError as error:
            raise StoreError(
                f"{key} in {self.store.url} is damaged ({error}); restore or delete it"
            ) from error
        return record, info.etag

    def _read_or_explain(self, key: str) -> tuple[JobRecord, str] | str | None:
        try:
            return self._read(key)
        except StoreError as error:
            logger.warning("the registry has an unreadable record: %s", error)
            return str(error)


def _check_key(key: str, record: JobRecord) -> None:
    """Raise ``ValueError`` if a record names another job than its key, or data of another job."""
    job = f"{record.team}/{record.name}"
    if key not in (f"{layout.JOBS}{job}.json", f"{layout.VERSIONS}{job}/{record.version:08d}.json"):
        raise ValueError(f"it names the job {job}")
    folder = layout.incoming_folder(record.team, record.name)
    if foreign := [item.key for item in record.data if not item.key.startswith(folder)]:
        raise ValueError(f"it names the data {foreign[0]}")


def cached(records: Iterable[JobRecord]) -> Cache:
    """Return a cache of records that were read elsewhere, with the ETags that they have in S3.

    A record that has another ETag there, because it has changed or the server does not use MD5, is read.
    """
    return {
        layout.job_record(record.team, record.name): (
            hashlib.md5(_document(record), usedforsecurity=False).hexdigest(),
            record,
        )
        for record in records
    }


def _document(record: JobRecord) -> bytes:
    return (json.dumps(record.as_json(), indent=2, sort_keys=True) + "\n").encode()
