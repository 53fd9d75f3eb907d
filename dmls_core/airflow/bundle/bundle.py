"""The versioned DAG bundle: the registry of accepted jobs as a fixed number of DAG files, the shards.

The DAG processor refreshes it; parsing then reads local files only, and Airflow parses only changed files
again.

A worker that executes a task uses the version with which the task's run started. It fetches the job of that
task only: the files of a version are stubs, and ``read_shard`` fetches the job.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.configuration import conf
from airflow.dag_processing.bundles.base import BaseDagBundle, BundleVersion

from dmls_core.airflow.access_control import AccessControl, access_of_teams
from dmls_core.airflow.bundle.dag_files import (
    has_stubs,
    job_json,
    static_dag_files,
    write_dag_files,
    write_stubs,
)
from dmls_core.airflow.settings import open_root, split_kwargs, team_entries
from dmls_core.airflow.shards import VERSION_FILE, dag_ids, is_shard, shard_file, written_jobs
from dmls_core.errors import DmlsError, ObjectMissingError, StoreError
from dmls_core.spec import Spec
from dmls_core.store import JobRecord, Registry, Store, layout
from dmls_core.store.registry import Cache, cached
from dmls_core.store.snapshots import Snapshots

if TYPE_CHECKING:
    from dmls_core.airflow.operations.watchdog import Watchdog

log = logging.getLogger(__name__)

STALE_MARGIN_SECONDS = 10.0
"""Time beyond ``stale_dag_threshold`` after which a shard that lost a DAG is parsed again."""

REPARSE_SECONDS = 20.0
"""Time after which a rewritten file is parsed again: longer than any parse that started before."""

LIST_SECONDS, FAULT_SECONDS = 60.0, 5.0
"""Seconds until the registry is listed again without a change, and while a record is unreadable."""

MOVE_SECONDS = 60.0
"""Time after which a file is parsed again if Airflow still has its DAGs from another file."""

WATCHER_SECONDS = 5.0
"""Seconds between two looks for DAGs without a watcher."""

FETCH_THREADS = 16


class DmlsBundle(BaseDagBundle):
    """Write the registry at ``root``, or its snapshot ``version``, as sharded DAG files."""

    supports_versioning = True

    def __init__(self, *, version: str | None = None, **kwargs: Any) -> None:
        self.settings, others = split_kwargs(kwargs)
        super().__init__(version=version, **others)
        self._registry: Registry | None = None
        self._snapshots: Snapshots | None = None
        self._watchdog: Watchdog | None = None
        self._records: Cache = {}
        self._parse_again: dict[tuple[Path, float], float] = {}
        self._everything: list[JobRecord] = []
        self._faults: dict[str, str] = {}
        self._change_mark: str | None = None  # of the registry's last change, at the last look
        self._change = ""  # the id of that change
        self._list_due = 0.0
        self._moving: dict[str, str] = {}  # DAGs -> files that Airflow has them from, besides their own
        self._moved = False  # whether it has all of them from their own
        self._watchers_due = 0.0
        self._written: list[JobRecord] | None = None  # records of the last write that read every spec
        self._access: dict[str, AccessControl] = {}  # of each team's DAGs, at that write
        self._jobs: dict[str, tuple[JobRecord, AccessControl | None, str]] = {}  # by DAG, with their JSON

    @property
    def path(self) -> Path:
        """Folder of the DAG files of this version."""
        return self.versions_dir / self.version if self.version else self.tracking

    @property
    def tracking(self) -> Path:
        """Folder of the latest DAG files, with all jobs; only the DAG processor's host has it."""
        return self.base_dir / "tracking"

    def initialize(self) -> None:
        """Write the files of this version to the local disk, unless they exist."""
        with self.lock():
            if self.version is None:
                # Parsers are forked from this process and inherit its imports.
                import dmls_core.airflow.jobs.job_dag  # noqa: F401
                from dmls_core.airflow.runners.runner import load_runner

                load_runner(self.settings)
                if self._written_version() is None:
                    self._refresh(first=True)
            elif self._written_version() != self.version or not has_stubs(self.path, self.settings.shards):
                write_stubs(self.path, self.settings.shards, self._static_files())
                (self.path / VERSION_FILE).write_text(self.version)
        super().initialize()

    def refresh(self) -> None:
        """Update the files to the current state of the registry.

        The DAG of a retired job stays, without a schedule, until its running runs have ended: Airflow
        schedules no task of a DAG that it does not have.
        """
        if self.version is not None:
            raise DmlsError(f"the bundle is pinned to version {self.version} and cannot be refreshed")
        with self.lock():
            records, faults = self._refresh()
        if self.settings.team:
            return  # the entry without a team watches over all jobs
        self._restore_watchers()
        if self._watchdog is None:
            # Imported here: each task imports this module, and only the DAG processor watches.
            from dmls_core.airflow.operations.service_health import service_probes
            from dmls_core.airflow.operations.watchdog import Watchdog

            store = open_root(self.settings, interactive=True)
            self._watchdog = Watchdog(store, service_probes(self.settings, store))
        self._watchdog.watch(records, faults)

    def get_current_version(self) -> BundleVersion | None:
        """Return the version of the files on disk."""
        version = self.version or self._written_version()
        return BundleVersion(version) if version else None

    def _written_version(self) -> str | None:
        file = self.path / VERSION_FILE
        return file.read_text() if file.is_file() else None

    def _open(self) -> tuple[Registry, Snapshots]:
        if self._registry is None or self._snapshots is None:
            store = open_root(self.settings)
            self._registry, self._snapshots = Registry(store), Snapshots(store)
        return self._registry, self._snapshots

    def _refresh(self, *, first: bool = False) -> tuple[list[JobRecord], dict[str, str]]:
        """Write the files; return all records of the registry, and its unreadable keys with their errors.

        The ``first`` time, in whatever process needs the files, there may be no database.
        """
        registry, snapshots = self._open()
        everything, faults = self._list(registry)
        records_here = [record for record in everything if self._has(record.team)]
        by_dag = {layout.dag_id(record.team, record.name): record for record in records_here}
        retired = {dag_id for dag_id, record in by_dag.items() if record.state == "retired"}
        gone = retired if first else retired - self._unfinished(retired)
        records = [record for dag_id, record in by_dag.items() if dag_id not in gone]
        self._touch_due()
        access = {} if first else access_of_teams(self.settings.access_control)
        moving = {} if first else self._find_moving(by_dag.keys() - gone)
        done = self._written, self._access, self._moving
        if (records, access, moving) == done and self._written_version():
            return everything, faults
        self._access, self._moving = access, moving
        version = snapshots.write(records)
        before = self._jobs.keys() or dag_ids(self.path)
        for path in self._write(records, version, registry.store):
            self._plan_parse(path, REPARSE_SECONDS)
        stale = conf.getint("dag_processor", "stale_dag_threshold") + STALE_MARGIN_SECONDS
        for dag_id in before - self._jobs.keys():
            self._plan_parse(shard_file(self.path, dag_id, self.settings.shards), stale)
        return everything, faults

    def _list(self, registry: Registry) -> tuple[list[JobRecord], dict[str, str]]:
        """Return all records, and the unreadable keys with their errors.

        After a change, the changed records are read. All are listed every ``LIST_SECONDS``, in case a writer
        was killed before it named its change, or an operator changed an object; sooner while a record is
        unreadable.
        """
        if not self._records:
            self._records = cached(record for record, _ in written_jobs(self.path))
        change_mark, due = registry.change_mark(), time.monotonic() >= self._list_due
        if change_mark == self._change_mark and not due:
            return self._everything, self._faults
        changes = registry.changes()
        is_continued = not due and not self._faults and self._change in changes
        keys = list(changes.values())[list(changes).index(self._change) + 1 :] if is_continued else None
        faults: dict[str, str] = {}
        self._everything = registry.jobs(self._records, faults, keys)
        self._change_mark, self._change, self._faults = change_mark, next(reversed(changes), ""), faults
        if keys is None or faults:
            pause = min(LIST_SECONDS, FAULT_SECONDS) if faults else LIST_SECONDS
            self._list_due = time.monotonic() + pause
        return self._everything, self._faults

    def _find_moving(self, jobs: AbstractSet[str]) -> dict[str, str]:
        """Return the jobs whose DAGs Airflow has from another file than theirs, with that file.

        That is so after the number of files has changed. If the other file lost the DAG before, Airflow would
        take it for deleted, and start none of its tasks, until it has parsed the DAG's own file.
        """
        if self._moved:
            return {}
        from dmls_core.airflow import database

        with database.create_session(scoped=False) as session:
            files = database.dag_files(session, self.name)
        moving = {}
        for dag_id in jobs & files.keys():
            file, shard = files[dag_id], shard_file(self.path, dag_id, self.settings.shards)
            if is_shard(file) and file != shard.name:
                moving[dag_id] = file
                if (shard, MOVE_SECONDS) not in self._parse_again:
                    self._plan_parse(shard, MOVE_SECONDS)
        self._moved = not moving
        return moving

    def _restore_watchers(self) -> None:
        """Have Airflow parse the file of each DAG again that has lost the watcher of its asset.

        When the arguments of a watcher's trigger change, such as the address of a server, Airflow 3.3 removes
        the new watcher with the old one, and adds it at the next parse, which may be an hour away.
        """
        if time.monotonic() < self._watchers_due:
            return
        from dmls_core.airflow import database

        with database.create_session(scoped=False) as session:
            unwatched = database.unwatched_dags(session)
        for dag_id, file in unwatched.items():
            if (self.path / file).is_file():
                log.warning("%s has no watcher: Airflow must parse %s again", dag_id, file)
                (self.path / file).touch()
        self._watchers_due = time.monotonic() + WATCHER_SECONDS

    def _has(self, team: str) -> bool:
        return team == self.settings.team if self.settings.team else team not in team_entries()

    def _static_files(self) -> list[Path]:
        """Return the DAG files that the entry without a team has."""
        return [] if self.settings.team else static_dag_files()

    def _unfinished(self, retired: set[str]) -> set[str]:
        """Return the DAGs of retired jobs that have runs to finish."""
        if not retired:
            return set()
        from dmls_core.airflow import database

        # The DAG processor has a session of its own in this thread.
        with database.create_session(scoped=False) as session:
            runs = database.unfinished_runs(session)
        return {dag_id for dag_id, state, paused in runs if state == "running" and not paused} & retired

    def _plan_parse(self, path: Path, seconds: float) -> None:
        self._parse_again[path, seconds] = time.monotonic() + seconds

    def _touch_due(self) -> None:
        """Touch the files that Airflow must parse a second time.

        Airflow regards a change during a parse as parsed, so the file would wait
        ``min_file_process_interval``. It deactivates a DAG only if a file is parsed without it
        ``stale_dag_threshold`` seconds after it was last seen.
        """
        for key in [key for key, due in self._parse_again.items() if due <= time.monotonic()]:
            del self._parse_again[key]
            path, _ = key
            if path.is_file():
                path.touch()

    def _write(self, records: list[JobRecord], version: str, store: Store) -> set[Path]:
        """Write the DAG files of these records; return the changed ones."""
        self._written = records
        before = self._jobs
        identified = [(layout.dag_id(record.team, record.name), record) for record in records]
        self._jobs = {
            dag_id: before[dag_id]
            for dag_id, record in identified
            if dag_id in before and before[dag_id][:2] == (record, self._access.get(record.team))
        }
        new = [(dag_id, record) for dag_id, record in identified if dag_id not in self._jobs]
        shas = sorted({record.spec_sha256 for _, record in new})
        with ThreadPoolExecutor(FETCH_THREADS) as pool:
            specs = dict(zip(shas, pool.map(lambda sha: self._spec(sha, store), shas), strict=True))
        broken: dict[str, str] = {}
        for dag_id, record in new:
            spec, access = specs[record.spec_sha256], self._access.get(record.team)
            if isinstance(spec, str):
                broken[dag_id] = f"{record.team}/{record.name}: {spec}"
            else:
                entry = {"record": record.as_json(), "spec": spec}
                entry |= {} if access is None else {"access_control": access}
                self._jobs[dag_id] = record, access, job_json(entry)
        changed = write_dag_files(
            self.path,
            {dag_id: text for dag_id, (_, _, text) in self._jobs.items()},
            broken,
            shards=self.settings.shards,
            static=self._static_files(),
            moving=self._moving,
            listed=version == self._written_version(),
        )
        (self.path / VERSION_FILE).write_text(version)
        log.info("registry version %s: %s jobs, %s unreadable", version, len(self._jobs), len(broken))
        return changed

    def _spec(self, sha256: str, store: Store) -> dict[str, Any] | str:
        """Return an accepted spec, from the local cache if possible, or a message why it cannot be read."""
        cached = self.base_dir / "specs" / f"{sha256}.json"
        try:
            content = cached.read_bytes() if cached.is_file() else store.get(layout.spec(sha256))
            spec = Spec.from_json(json.loads(content)).as_json()
        except (DmlsError, ValueError, RecursionError) as error:
            if isinstance(error, StoreError) and not isinstance(error, ObjectMissingError):
                self._written = None  # the store may answer next time: try again then
            return f"its accepted spec {sha256[:12]} cannot be read: {error}"
        if not cached.is_file():
            cached.parent.mkdir(parents=True, exist_ok=True)
            part = cached.with_suffix(".part")
            part.write_bytes(content)
            part.replace(cached)
        return spec
