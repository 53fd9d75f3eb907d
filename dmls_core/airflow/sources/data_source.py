"""``[data.source]``: check what a spec names at admission, and take a snapshot of it for a run."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from dmls_core import sandbox
from dmls_core.airflow.sources.database_tables import open_rows
from dmls_core.airflow.sources.lake_tables import LakeReader, NeededRows
from dmls_core.airflow.sources.object_files import ObjectFiles, hive_columns
from dmls_core.data.formats.data_files import content_hash
from dmls_core.data.formats.names import format_of, naming_hint
from dmls_core.data.snapshot import SnapshotWriter, write_snapshot
from dmls_core.errors import DataError, ObjectMissingError, PlatformError, UserError, ValidationIssue
from dmls_core.intake import Partition, find_partitions
from dmls_core.intake.column_check import LIMITS, Findings, examine
from dmls_core.settings import DataLimits, IntakeLimits
from dmls_core.spec import Spec
from dmls_core.spec.data_table import Source
from dmls_core.store import DataObject, ObjectInfo, Store, layout
from dmls_core.store.source_snapshots import find_snapshot

_KEY = "data.source."

BEGINNING = datetime(1900, 1, 1, tzinfo=UTC)
"""``:start`` of a run without a first interval, as databases without earlier dates can compare it."""

_SNAPSHOT_LIMITS = sandbox.Limits(memory=4 << 30, seconds=3600, cpu_seconds=3600)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Rows of a source as a Parquet object.

    Attributes:
        sha256: hash of the content.
        version: version or snapshot id of the lake table that the rows are from.
    """

    data: DataObject
    sha256: str
    version: int | None = None


@dataclass(frozen=True)
class SourceReader:
    """Reads the source that the spec of a team's job names."""

    team: str
    spec: Spec

    @property
    def source(self) -> Source:
        """``[data.source]`` of the spec."""
        if self.spec.data.source is None:
            raise ValueError("the spec has no source")
        return self.spec.data.source

    def check(self) -> Findings:
        """Return the issues of the connection, the source, or the columns of its first rows."""
        limits = IntakeLimits.from_environment()
        with tempfile.TemporaryDirectory(prefix="dmls-source-") as scratch:
            target = Path(scratch) / "rows.parquet"
            try:
                if self.source.path:
                    newest = self.partitions()[-1:] if self.spec.partitions else []
                    files = [partition.file for partition in newest] or self.files()[:1]
                    if files[0].size > limits.whole_bytes:
                        return Findings()
                    rows = self._join(files, target, every_column=True)
                elif self.source.lake:
                    with LakeReader(self.team, self.source) as table:
                        rows = table.copy(table.find(), [], target, sample=True)
                else:
                    rows = self._fetch(target, (BEGINNING, datetime.now(UTC)), batches=1)
                document = self.spec.as_json()
                scope = "sample" if rows else "footer"
                findings = Findings.from_json(
                    sandbox.run(examine, [str(target)], document, scope, limits=LIMITS)
                )
            except PlatformError as error:
                hint = "ask the platform team to test the connection, and upload the spec again"
                return Findings((ValidationIssue(str(error), hint=hint, key=f"{_KEY}connection"),))
            except UserError as error:
                return Findings(error.issues)
        issues = (replace(issue, file=self.source.label, line=None) for issue in findings.issues)
        return replace(findings, issues=tuple(issues))

    def partitions(self) -> list[Partition]:
        """Return the files of each period, sorted by time."""
        if self.spec.partitions is None:
            return []
        return find_partitions(self._files.list(), "", self.spec.partitions, self.spec.timezone)

    def files(self) -> list[ObjectInfo]:
        """Return the files; raise ``DataError`` if there are none."""
        files = self._files.list()
        if not files:
            raise DataError(
                ValidationIssue(
                    "there are no files",
                    hint="correct the path, or upload the spec again when the files are there",
                    key=f"{_KEY}path",
                    file=self.source.connection,
                    found=str(self.source.path),
                )
            )
        unknown = [file.key for file in files if format_of(file.key) is None]
        if unknown:
            raise DataError(
                ValidationIssue(
                    "the name of the file does not show its format",
                    hint=naming_hint(unknown[0]),
                    key=f"{_KEY}path",
                    file=self.source.connection,
                    found=unknown[0],
                )
            )
        return files

    def snapshot(
        self,
        store: Store,
        job: str,
        between: tuple[datetime, datetime],
        files: Sequence[ObjectInfo] | None = None,
        *,
        by_interval: bool = False,
        backfill: bool = False,
    ) -> Snapshot:
        """Copy the rows of the source to the store, unless the store has the same rows already.

        ``between`` are the times of the run's interval, for the parameters of a query; ``files`` are those to
        read, by default all. ``by_interval`` says whether the run has an interval, so that it reads a lake
        table as it was at its end, or its rows. Of a table that did not exist then, the newest version is
        read, but not by a ``backfill``.

        Raises:
            DataError: the source cannot be read as the spec says, or has too many rows.
            PlatformError: the connection or the store does not answer.
        """
        with tempfile.TemporaryDirectory(prefix="dmls-source-") as scratch:
            target = Path(scratch) / "rows.parquet"
            if self.source.lake:
                interval = between if by_interval else None
                return self._of_lake(store, job, interval, target, backfill=backfill)
            if self.source.path is None:
                return self._upload(store, job, target, self._fetch(target, between))
            files = self.files() if files is None else files
            _check_bytes(sum(file.size for file in files))
            listing = layout.source_files(self.team, job, self._identity(files))
            if snapshot := _find_snapshot(store, listing):
                return snapshot
            return self._upload(store, job, target, self._join(files, target), listing)

    def _of_lake(
        self,
        store: Store,
        job: str,
        interval: tuple[datetime, datetime] | None,
        target: Path,
        *,
        backfill: bool,
    ) -> Snapshot:
        """Copy a version of a lake table; see ``snapshot``."""
        time, used = self.spec.columns.time, self._used
        rows = NeededRows(time, *interval, self.spec.timezone) if interval and time else None
        with LakeReader(self.team, self.source) as table:
            try:
                version = table.find(interval[1] if interval and not time else None)
            except DataError:
                if interval is None or backfill:
                    raise
                version = table.find()
            facts = [self.source.lake, version.identity, version.number, used, rows and rows.as_json()]
            listing = layout.source_files(self.team, job, _hash(facts))
            snapshot = _find_snapshot(store, listing) or self._upload(
                store, job, target, table.copy(version, used, target, rows=rows), listing
            )
        return replace(snapshot, version=version.number)

    def _upload(self, store: Store, job: str, target: Path, rows: int, listing: str = "") -> Snapshot:
        """Store a copy; ``listing`` is the key of the record that leads the same files to it again."""
        if not rows:
            raise DataError(self._no_rows())
        _check_bytes(target.stat().st_size)
        sha256 = content_hash([target])
        key = layout.source_snapshot(self.team, job, sha256)
        info = find_snapshot(store, key) or store.upload(key, target)
        if listing:
            store.put(listing, json.dumps({"schema": 1, "sha256": sha256, "key": key}).encode())
        return Snapshot(DataObject(key, info.etag, info.size), sha256)

    @property
    def _files(self) -> ObjectFiles:
        return ObjectFiles(self.team, self.source.connection, str(self.source.path))

    @property
    def _used(self) -> list[str]:
        """The columns that the spec names, if it names the features; else none, for all."""
        columns = self.spec.columns
        others = (columns.target, columns.id, columns.time, columns.group, columns.weight)
        used = [*columns.features, *(name for name in others if name)] if columns.features else []
        return list(dict.fromkeys(used))

    def _fetch(self, target: Path, between: tuple[datetime, datetime], batches: int | None = None) -> int:
        """Write the rows of a database, or only some batches of them, and return their number."""
        source = self.source
        parts = target.parent / "parts"
        parts.mkdir()
        writer = SnapshotWriter(parts, DataLimits.from_environment().rows)
        with open_rows(
            self.team, source.connection, table=source.table, query=source.query, between=between, key=_KEY
        ) as rows:
            writer.add(rows.names, [])
            for batch in islice(rows.batches, batches):
                writer.add(rows.names, batch)
        writer.finish(target)
        return writer.rows

    def _join(self, files: Sequence[ObjectInfo], target: Path, *, every_column: bool = False) -> int:
        """Write the rows of files, read in a sandbox, and return their number.

        If the spec names the features, the other columns are left out.
        """
        paths = []
        for at, file in enumerate(files):
            path = target.parent / f"file-{at}" / file.key.rpartition("/")[2]
            path.parent.mkdir()
            self._files.download(file, path)
            paths.append(str(path))
        try:
            rows: int = sandbox.run(
                write_snapshot,
                paths,
                [hive_columns(file.key) for file in files],
                self.spec.data.model_dump(mode="json"),
                [] if every_column else self._used,
                str(target),
                [file.key for file in files],
                limits=_SNAPSHOT_LIMITS,
                file=files[0].key,
            )
        except DataError as error:
            addresses = {Path(path).name: file.key for path, file in zip(paths, files, strict=True)}
            raise DataError(
                [replace(issue, file=addresses.get(issue.file, issue.file)) for issue in error.issues]
            ) from error
        return rows

    def _identity(self, files: Sequence[ObjectInfo]) -> str:
        """Return a hash of what a snapshot of files depends on."""
        listed = [(file.key, file.etag, file.size) for file in files]
        return _hash([listed, self.spec.data.reading, self.spec.columns.model_dump(mode="json")])

    def _no_rows(self) -> ValidationIssue:
        hint = "check the condition of the query and the run's interval, or that the table has been filled"
        return ValidationIssue("the source has no rows", hint=hint, file=self.source.label, key="data.source")


def _check_bytes(size: int) -> None:
    """Raise ``DataError`` if a source has more bytes than data may have."""
    most = IntakeLimits.from_environment().data_bytes
    if size > most:
        raise DataError(
            ValidationIssue(
                "the source has too much data",
                hint="select less, or ask the platform team to raise DMLS_INTAKE_DATA_BYTES",
                key="data.source",
                found=f"{size:,} bytes",
                expected=f"at most {most:,} bytes",
            )
        )


def check_source(team: str, spec: Spec) -> Findings:
    """Return the issues of the source of a team's spec; see ``SourceReader.check``."""
    return SourceReader(team, spec).check()


def _hash(facts: list[Any]) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _find_snapshot(store: Store, listing: str) -> Snapshot | None:
    """Return the snapshot that the same files became before, if it is still there."""
    try:
        record: dict[str, Any] = json.loads(store.get(listing))
    except ObjectMissingError:
        return None
    info = find_snapshot(store, record["key"])
    return Snapshot(DataObject(info.key, info.etag, info.size), record["sha256"]) if info else None
