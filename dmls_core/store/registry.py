"""The registry of accepted specs: which version of each job is current, and which were before."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol

from dmls_core.errors import ConflictError, NotFoundError, ObjectMissingError, StoreError
from dmls_core.store import layout
from dmls_core.store.base import ObjectInfo, Store
from dmls_core.store.job_record import DataObject, JobRecord
from dmls_core.store.run_key import run_key

logger = logging.getLogger(__name__)

THREADS = 16
ATTEMPTS = 8

MAX_VERSIONS = 100
"""Versions of a job that are told of, the latest ones."""


class AcceptableSpec(Protocol):
    """What the registry needs to know of a validated spec."""

    @property
    def sha256(self) -> str:
        """Hash of the canonical JSON."""

    def canonical(self) -> bytes:
        """Return the canonical JSON, every default written in."""


Cache = MutableMapping[str, tuple[str, JobRecord]]
"""Key of a record -> its ETag and the record, so that unchanged records are not fetched again."""


class Registry:
    """Accepted specs (immutable) and job records (written conditionally) in a store."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def job(self, team: str, name: str) -> JobRecord | None:
        """Return a job's current record, active or retired; ``None`` if it was never accepted."""
        found = self._read(layout.job_record(team, name))
        return found[0] if found else None

    def jobs(self, cache: Cache | None = None) -> list[JobRecord]:
        """Return every job's record in order of keys; one that cannot be read is logged and left out.

        Args:
            cache: kept by the caller between calls; filled and pruned here.
        """
        cache = {} if cache is None else cache
        listing = {info.key: info.etag for info in self.store.list(layout.JOBS)}
        for key in set(cache) - set(listing):
            del cache[key]
        changed = [key for key, etag in listing.items() if key not in cache or cache[key][0] != etag]
        with ThreadPoolExecutor(THREADS) as threads:
            for key, found in zip(changed, threads.map(self._read_leniently, changed), strict=True):
                cache.pop(key, None)
                if found:
                    cache[key] = (found[1], found[0])
        return [cache[key][1] for key in sorted(cache)]

    def versions(self, team: str, name: str) -> list[JobRecord]:
        """Return the latest ``MAX_VERSIONS`` accepted versions of a job, the newest first."""
        keys = sorted(info.key for info in self.store.list(layout.versions_folder(team, name)))
        with ThreadPoolExecutor(THREADS) as threads:
            found = [item[0] for item in threads.map(self._read_leniently, keys[1 - MAX_VERSIONS :]) if item]
        if current := self.job(team, name):
            found = [record for record in found if record.version < current.version] + [current]
        return found[::-1]

    def spec(self, sha256: str) -> dict[str, Any]:
        """Return an accepted spec's JSON.

        Raises:
            StoreError: it is missing or damaged.
        """
        document = self.store.get(layout.spec(sha256))
        if hashlib.sha256(document).hexdigest() != sha256:
            raise StoreError(f"the accepted spec {sha256} is damaged; drop the spec again")
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
        """Make a submission its job's current version.

        The same spec and data again change nothing. Of several calls at once for the same content one
        writes a version and all return it.

        Args:
            spec: validated.
            team: owner of the job.
            name: of the job.
            data: the data objects as they were listed.
            admitted: becomes the record's ``admitted`` if this is a new version.
            fingerprint: of the submission.

        Returns:
            The record that is current afterwards and describes this content.

        Raises:
            ConflictError: others kept changing the record.
        """
        pinned = tuple(sorted((DataObject(d.key, d.etag, d.size) for d in data), key=lambda d: d.key))
        wanted = JobRecord(
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
        for _ in range(ATTEMPTS):
            found = self._read(key)
            try:
                if found is None:
                    self.store.create(key, _document(wanted))
                    return wanted
                current, etag = found
                if current.state == "active" and current.run_key == wanted.run_key:
                    return current
                wanted = replace(wanted, version=current.version + 1)
                self._keep_version(current)
                self.store.replace(key, _document(wanted), etag)
            except ConflictError:
                continue
            return wanted
        raise ConflictError(f"cannot accept {team}/{name}: others keep changing its record; try again")

    def retire(self, team: str, name: str) -> JobRecord:
        """Mark a job as removed by its owner; its history stays.

        Raises:
            NotFoundError: there is no such job.
            ConflictError: others kept changing the record.
        """
        key = layout.job_record(team, name)
        for _ in range(ATTEMPTS):
            found = self._read(key)
            if found is None:
                raise NotFoundError(f"there is no job {team}/{name}")
            current, etag = found
            if current.state == "retired":
                return current
            retired = replace(current, state="retired")
            try:
                self.store.replace(key, _document(retired), etag)
            except ConflictError:
                continue
            return retired
        raise ConflictError(f"cannot retire {team}/{name}: others keep changing its record; try again")

    def _keep_version(self, record: JobRecord) -> None:
        """Keep what is about to be replaced: killed in between, nothing is lost and nothing is wrong."""
        try:
            self.store.create(layout.version(record.team, record.name, record.version), _document(record))
        except ConflictError:
            return  # another writer was at the same place

    def _keep(self, spec: AcceptableSpec) -> None:
        try:
            self.store.create(layout.spec(spec.sha256), spec.canonical())
        except ConflictError:
            return  # content-addressed: what is there is the same

    def _read(self, key: str) -> tuple[JobRecord, str] | None:
        try:
            document, info = self.store.read(key)
        except ObjectMissingError:
            return None
        try:
            return JobRecord.from_json(json.loads(document)), info.etag
        except ValueError as error:
            raise StoreError(
                f"{key} in {self.store.url} is damaged ({error}); restore or delete it"
            ) from error

    def _read_leniently(self, key: str) -> tuple[JobRecord, str] | None:
        try:
            return self._read(key)
        except StoreError:
            logger.exception("left out of the registry: %s", key)
            return None


def _document(record: JobRecord) -> bytes:
    return (json.dumps(record.as_json(), indent=2, sort_keys=True) + "\n").encode()
