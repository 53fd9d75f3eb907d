"""The versioned DAG bundle: the registry of accepted jobs as a fixed number of DAG files, the shards.

The DAG processor refreshes it; parsing then reads local files only. A shard is ``shard_NN.py`` (a few lines,
the same for all) and ``shard_NN.json`` (its jobs). A file is rewritten only if its content changes, so that
Airflow parses only changed files again.

A worker that executes a task uses the version with which the task's run started. It fetches the job of that
task only: the files of a version are stubs, and ``read_shard`` fetches the job.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import time
import zlib
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.configuration import conf
from airflow.dag_processing.bundles.base import BaseDagBundle, BundleVersion

import dmls_core
from dmls_core.airflow.access_control import AccessControl, access_of_teams
from dmls_core.airflow.settings import airflow_settings, open_root, split_kwargs, team_entries
from dmls_core.errors import DmlsError, ObjectMissingError, StoreError
from dmls_core.spec import Spec
from dmls_core.store import JobRecord, Registry, Store, layout
from dmls_core.store.snapshots import Snapshots

if TYPE_CHECKING:
    from dmls_core.airflow.watchdog import Watchdog

log = logging.getLogger(__name__)

VERSION_FILE = "version"
"""Holds the version of the other files in its folder; written last."""

STALE_MARGIN_SECONDS = 10.0
"""Time beyond ``stale_dag_threshold`` after which a shard that lost a DAG is parsed again."""

REPARSE_SECONDS = 20.0
"""Time after which a rewritten file is parsed again: longer than any parse that started before."""

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
        self._records: dict[str, tuple[str, JobRecord]] = {}
        self._parse_again: dict[tuple[Path, float], float] = {}
        self._written: list[JobRecord] | None = None  # records of the last write that read every spec
        self._access: dict[str, AccessControl] = {}  # of each team's DAGs, at that write

    @property
    def path(self) -> Path:
        """Folder of the DAG files of this version."""
        return self.versions_dir / self.version if self.version else self.base_dir / "tracking"

    def initialize(self) -> None:
        """Write the files of this version to the local disk, unless they exist."""
        with self.lock():
            if self.version is None:
                # Parsers are forked from this process and inherit its imports.
                import dmls_core.airflow.job_dag  # noqa: F401
                from dmls_core.airflow.runners import load_runner

                load_runner(self.settings)
                if self._written_version() is None:
                    self._refresh(first=True)
            elif self._written_version() != self.version:
                self._write_stubs(self.version)
        super().initialize()

    def refresh(self) -> None:
        """Update the files to the current state of the registry; withdraw the approvals of retired jobs.

        The DAG of a retired job stays, without a schedule, until its running runs have ended: Airflow
        schedules no task of a DAG that it does not have.
        """
        if self.version is not None:
            raise DmlsError(f"the bundle is pinned to version {self.version} and cannot be refreshed")
        with self.lock():
            records, faults = self._refresh()
        if self.settings.team:
            return  # the entry without a team watches over all jobs
        if self._watchdog is None:
            # Imported here: each task imports this module, and only the DAG processor watches.
            from dmls_core.airflow.service_health import service_probes
            from dmls_core.airflow.watchdog import Watchdog

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
        faults: dict[str, str] = {}
        everything = registry.jobs(self._records, faults)
        own = [record for record in everything if self._has(record.team)]
        found = {layout.dag_id(record.team, record.name): record for record in own}
        retired = {dag_id for dag_id, record in found.items() if record.state == "retired"}
        gone = retired if first else retired - self._unfinished(retired)
        records = [record for dag_id, record in found.items() if dag_id not in gone]
        self._touch_due()
        access = {} if first else access_of_teams(self.settings.access_control)
        if (records, access) == (self._written, self._access) and self._written_version():
            return everything, faults
        self._access = access
        version = snapshots.write(records)
        before = dag_ids(self.path)
        for path in self._write(records, version, registry.store):
            self._plan_parse(path, REPARSE_SECONDS)
        stale = conf.getint("dag_processor", "stale_dag_threshold") + STALE_MARGIN_SECONDS
        for dag_id in before - dag_ids(self.path):
            self._plan_parse(shard_file(self.path, dag_id, self.settings.shards), stale)
        return everything, faults

    def _has(self, team: str) -> bool:
        return team == self.settings.team if self.settings.team else team not in team_entries()

    def _static_files(self) -> list[Path]:
        """Return the DAG files that the entry without a team has."""
        return [] if self.settings.team else static_dag_files()

    def _unfinished(self, retired: set[str]) -> set[str]:
        """Withdraw the approvals of retired jobs; return the DAGs that have runs to finish."""
        if not retired:
            return set()
        from dmls_core.airflow import metadata

        # The DAG processor has a session of its own in this thread.
        with metadata.create_session(scoped=False) as session:
            if count := metadata.withdraw_approvals(session, retired):
                log.info("withdrawn approvals of retired jobs: %s", count)
            runs = metadata.unfinished_runs(session)
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

    def _write_stubs(self, version: str) -> None:
        """Write the DAG files of a version without its jobs."""
        files = {path.name: path.read_text() for path in self._static_files()}
        files |= {
            f"shard_{number:02d}.py": SHARD.format(number=number, digest=version)
            for number in range(self.settings.shards)
        }
        self.path.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            _write_if_changed(self.path / name, content)
        (self.path / VERSION_FILE).write_text(version)

    def _write(self, records: list[JobRecord], version: str, store: Store) -> set[Path]:
        """Write the DAG files of these records; return the changed ones."""
        self._written = records
        shas = sorted({record.spec_sha256 for record in records})
        with ThreadPoolExecutor(FETCH_THREADS) as pool:
            specs = dict(zip(shas, pool.map(lambda sha: self._spec(sha, store), shas), strict=True))
        jobs: dict[str, dict[str, Any]] = {}
        broken: dict[str, str] = {}
        for record in records:
            dag_id, spec = layout.dag_id(record.team, record.name), specs[record.spec_sha256]
            if isinstance(spec, str):
                broken[dag_id] = f"{record.team}/{record.name}: {spec}"
            else:
                jobs[dag_id] = {"record": record.as_json(), "spec": spec}
                if record.team in self._access:
                    jobs[dag_id]["access_control"] = self._access[record.team]
        changed = write_dag_files(
            self.path, jobs, broken, shards=self.settings.shards, static=self._static_files()
        )
        (self.path / VERSION_FILE).write_text(version)
        log.info("registry version %s: %s jobs, %s unreadable", version, len(jobs), len(broken))
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


def read_shard(dag_file: str, dag_id: str | None) -> dict[str, dict[str, Any]]:
    """Return the jobs of a DAG file as ``write_dag_files`` takes them; of a pinned version only ``dag_id``.

    Raises:
        NotFoundError: the pinned version was deleted.
        StoreError: the store cannot be read.
    """
    shard = Path(dag_file).with_suffix(".json")
    entries: dict[str, dict[str, Any]] = (
        json.loads(shard.read_text()) if shard.is_file() else _fetch(shard, dag_id)
    )
    return entries


def _fetch(shard: Path, dag_id: str | None) -> dict[str, dict[str, Any]]:
    """Fetch a job and keep it in the folder for its run's next task; without ``dag_id``, the whole shard."""
    kept = shard.with_name(f"{dag_id}.json")
    if dag_id and kept.is_file():
        return {dag_id: json.loads(kept.read_text())}
    settings = airflow_settings()
    store = open_root(settings)
    registry, snapshots = Registry(store), Snapshots(store)
    version = (shard.parent / VERSION_FILE).read_text()
    if not dag_id:
        records = {layout.dag_id(record.team, record.name): record for record in snapshots.read(version)}
        return {
            member: {"record": record.as_json(), "spec": registry.spec(record.spec_sha256)}
            for member, record in records.items()
            if shard_file(shard.parent, member, settings.shards).stem == shard.stem
        }
    team, name = layout.parse_dag_id(dag_id)
    record = snapshots.find(version, team, name)
    if record is None:
        return {}
    entry = {"record": record.as_json(), "spec": registry.spec(record.spec_sha256)}
    _write_if_changed(kept, json.dumps(entry))
    return {dag_id: entry}


SHARD = '''"""DMLS jobs, shard {number:02d}: an Airflow DAG file generated by DMLS. Content {digest}."""

import airflow.sdk  # imported before the parser forks

from dmls_core.airflow.job_dag import load_shard

globals().update(load_shard(__file__))
'''

REJECTED = '''"""A job that DMLS could not read: this Airflow DAG file only raises the reason."""

raise ValueError({message!r})
'''


def write_dag_files(
    folder: Path,
    jobs: Mapping[str, dict[str, Any]],
    broken: Mapping[str, str],
    *,
    shards: int,
    static: Iterable[Path] = (),
) -> set[Path]:
    """Write the DAG files of exactly these jobs and copies of ``static``; return the files that changed.

    ``jobs`` maps DAG ids to ``{"record": ..., "spec": ...}``, ``broken`` to a message if the spec is
    unreadable. Unchanged files stay untouched; new files are not returned.
    """
    folder.mkdir(parents=True, exist_ok=True)
    wanted: dict[str, str] = {path.name: path.read_text() for path in static}
    for number, members in _shards(jobs, shards).items():
        content = json.dumps(members, sort_keys=True, separators=(",", ":"))
        digest = hashlib.sha256(content.encode()).hexdigest()[:16]
        wanted[f"shard_{number:02d}.json"] = content
        wanted[f"shard_{number:02d}.py"] = SHARD.format(number=number, digest=digest)
    for dag_id, message in broken.items():
        name = hashlib.sha256(dag_id.encode()).hexdigest()[:16]
        wanted[f"rejected_{name}.py"] = REJECTED.format(message=message)
    # Write a shard's jobs before the file that reads them.
    in_order = sorted(wanted, key=lambda n: (not n.endswith(".json"), n))
    changed = {folder / name for name in in_order if _write_if_changed(folder / name, wanted[name])}
    for path in folder.iterdir():
        if path.suffix in (".py", ".json") and path.name not in wanted:
            path.unlink()
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)
    return {path for path in changed if path.suffix == ".py"}


def static_dag_files() -> list[Path]:
    """Return the DAG files that ship with DMLS: in the wheel, or ``dags/`` of a checkout."""
    package = Path(dmls_core.__file__).parent
    for folder in (package / "airflow" / "dags", package.parent / "dags"):
        if folder.is_dir():
            return sorted(folder.glob("*.py"))
    raise FileNotFoundError(f"no DAG files in {package / 'airflow' / 'dags'}: reinstall DMLS")


def dag_ids(folder: Path) -> set[str]:
    """Return the DAG ids of all shards in ``folder``."""
    return {dag_id for path in folder.glob("shard_*.json") for dag_id in json.loads(path.read_text())}


def shard_file(folder: Path, dag_id: str, shards: int) -> Path:
    """Return the DAG file that ``dag_id`` belongs to."""
    return folder / f"shard_{_shard_number(dag_id, shards):02d}.py"


def _shard_number(dag_id: str, shards: int) -> int:
    # crc32 and not hash(): it does not depend on PYTHONHASHSEED.
    return zlib.crc32(dag_id.encode()) % shards


def _shards(jobs: Mapping[str, dict[str, Any]], count: int) -> dict[int, dict[str, Any]]:
    members: dict[int, dict[str, Any]] = {}
    for dag_id in sorted(jobs):
        members.setdefault(_shard_number(dag_id, count), {})[dag_id] = jobs[dag_id]
    return members


def _write_if_changed(path: Path, content: str) -> bool:
    """Write the file atomically if its content differs; return whether it replaced other content."""
    before = path.read_text() if path.is_file() else None
    if before == content:
        return False
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_text(content)
    part.replace(path)
    return before is not None
