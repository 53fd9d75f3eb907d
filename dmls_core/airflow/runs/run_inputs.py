"""Select the data that a run of a job reads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import pendulum
from airflow.timetables.base import DataInterval

from dmls_core.airflow.runs.intervals import Intervals
from dmls_core.errors import DataError, ValidationIssue
from dmls_core.intake import Partition, choose_data, find_partitions, group_submissions, partitions_between
from dmls_core.spec import Spec
from dmls_core.store import DataObject, JobRecord, ObjectInfo, Store, layout, run_key


@dataclass(frozen=True, slots=True)
class RunInputs:
    """Data of a run, selected once by its first task.

    Without intervals, a run has its own inputs only if a user changed something for it.

    Attributes:
        run_key: hash of spec, ETags and interval.
        data: sorted by key.
        interval: start and end, ISO 8601 in UTC; ``None`` for data without an interval.
        since: start of the window, ISO 8601 in UTC; ``None``: all rows up to the interval's end.
        source_version: version or snapshot id of the lake table that the run reads.
    """

    run_key: str
    data: tuple[DataObject, ...]
    interval: tuple[str, str] | None
    since: str | None
    source_version: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON, for ``from_json``, without tuples: Airflow stores each as an object."""
        interval = list(self.interval) if self.interval else None
        return asdict(self) | {"data": [asdict(item) for item in self.data], "interval": interval}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> RunInputs:
        """Build the inputs from the result of ``as_json``."""
        interval, data = fields["interval"], tuple(DataObject(**item) for item in fields["data"])
        return cls(**fields | {"data": data, "interval": tuple(interval) if interval else None})


@dataclass(frozen=True)
class InputSelector:
    """Select the data for runs of one version of a job that has intervals."""

    store: Store
    record: JobRecord
    spec: Spec
    intervals: Intervals
    backfill: bool = False

    @property
    def folder(self) -> str:
        """Key of the job's folder."""
        return layout.incoming_folder(self.record.team, self.record.name)

    def partitions(self) -> list[Partition]:
        """Return the partitions in the store or of the source, sorted by time; none without a pattern."""
        if self.spec.partitions is None:
            return []
        if self.spec.data.source:
            # Imported here and below: DAGs are parsed often, and few runs read a source.
            from dmls_core.airflow.sources.data_source import SourceReader

            return SourceReader(self.record.team, self.spec).partitions()
        listing = self.store.list(self.folder + self.spec.partitions.prefix)
        return find_partitions(listing, self.folder, self.spec.partitions, self.spec.timezone)

    def latest_interval(self, moment: pendulum.DateTime) -> DataInterval:
        """Return the last interval that has ended at ``moment`` and has data.

        Else return the interval of the newest partition, or without partitions the last one that has ended.
        """
        partitions = self.partitions()
        for partition in reversed(partitions):
            interval = self._interval_of(partition)
            if interval.end <= moment:
                return interval
        return self._interval_of(partitions[-1]) if partitions else self.intervals.before(moment)

    def admitted_interval(self) -> DataInterval | None:
        """Return the interval of the newest partition that this version was admitted with, if any."""
        admitted = {item.key for item in self.record.data}
        partitions = [partition for partition in self.partitions() if partition.file.key in admitted]
        return self._interval_of(partitions[-1]) if partitions else None

    def select(self, interval: DataInterval) -> RunInputs | None:
        """Return the inputs of a run for ``interval``, or ``None`` if its partition does not exist yet."""
        window = self.spec.data.window
        since = None if window == "all" else self.intervals.window_start(interval, window)
        files: list[ObjectInfo] | None = None
        if self.spec.partitions:
            existing = self.partitions()
            if not partitions_between(existing, interval.start, interval.end):
                return None
            files = [partition.file for partition in partitions_between(existing, since, interval.end)]
        if self.spec.data.source:
            return self._of_source(interval, since, files)
        if files is not None:
            data = [DataObject(file.key, file.etag, file.size) for file in files]
        elif self.record.data:
            data = list(self.record.data)
            check_unchanged(self.store, data)
        else:
            data = _current_data(self.store, self.record, self.spec)
        data.sort(key=lambda item: item.key)
        return RunInputs(
            run_key=run_key(
                self.record.spec_sha256, (item.etag for item in data), (interval.start, interval.end)
            ),
            data=tuple(data),
            interval=(_iso(interval.start), _iso(interval.end)),
            since=None if since is None else _iso(since),
        )

    def _of_source(
        self, interval: DataInterval, since: datetime | None, files: list[ObjectInfo] | None
    ) -> RunInputs:
        """Return the inputs of a run that takes a snapshot of the source."""
        from dmls_core.airflow.sources.data_source import BEGINNING, SourceReader

        reader = SourceReader(self.record.team, self.spec)
        snapshot = reader.snapshot(
            self.store,
            self.record.name,
            (since or BEGINNING, interval.end),
            files,
            by_interval=True,
            backfill=self.backfill,
        )
        key = run_key(self.record.spec_sha256, [snapshot.sha256], (interval.start, interval.end))
        ends = (_iso(interval.start), _iso(interval.end))
        start = None if since is None else _iso(since)
        return RunInputs(key, (snapshot.data,), ends, start, snapshot.version)

    def _interval_of(self, partition: Partition) -> DataInterval:
        """Return the interval within which the partition's own time ends."""
        end = pendulum.instance(partition.end)
        interval = self.intervals.before(end)
        return interval if interval.end == end else self.intervals.after(interval)


def select_without_interval(store: Store, record: JobRecord, spec: Spec) -> RunInputs:
    """Return the inputs of a run without interval: the admitted data, else what its spec names."""
    if spec.data.source:
        from dmls_core.airflow.sources.data_source import BEGINNING, SourceReader

        until = datetime.now(UTC)
        snapshot = SourceReader(record.team, spec).snapshot(store, record.name, (BEGINNING, until))
        key = run_key(record.spec_sha256, [snapshot.sha256])
        return RunInputs(key, (snapshot.data,), None, None, snapshot.version)
    if record.data:
        check_unchanged(store, record.data)
    data = tuple(record.data or _current_data(store, record, spec))
    key = run_key(record.spec_sha256, (item.etag for item in data))
    return RunInputs(run_key=key, data=data, interval=None, since=None)


def _current_data(store: Store, record: JobRecord, spec: Spec) -> list[DataObject]:
    """Return the files that a spec names, with their current ETags; raise ``DataError`` if there are none."""
    folder = layout.incoming_folder(record.team, record.name)
    for submission in group_submissions(store.list(folder)):
        if (submission.team, submission.job) == (record.team, record.name):
            chosen = choose_data(submission, spec)
            if chosen:
                return [DataObject(file.key, file.etag, file.size) for file in chosen]
    named = f" that [data] path names ({spec.data.path})" if spec.data.path else ""
    raise DataError(ValidationIssue(f"the data{named} no longer exists", key=folder, hint="upload it again"))


def check_unchanged(store: Store, data: Iterable[DataObject]) -> None:
    """Raise ``DataError`` if an object was deleted or replaced since its admission."""
    issues = []
    for item in data:
        current = store.head(item.key)
        if current is None:
            hint = "upload it again: that starts a new run"
            issues.append(ValidationIssue("the data no longer exists", key=item.key, hint=hint))
        elif current.etag != item.etag:
            issues.append(
                ValidationIssue(
                    "the data was replaced after this run's submission was accepted",
                    key=item.key,
                    found=current.etag,
                    expected=item.etag,
                    hint="the new data has a run of its own",
                )
            )
    if issues:
        raise DataError(issues)


def check_size(data: Iterable[DataObject], most: int) -> None:
    """Raise ``DataError`` if the objects have more than ``most`` bytes together."""
    total = sum(item.size for item in data)
    if total > most:
        raise DataError(
            ValidationIssue(
                "the data of this window is too large",
                key="data.window",
                found=f"{total:,} bytes",
                expected=f"at most {most:,} bytes",
                hint="use fewer intervals, or ask the platform team to raise the limit",
            )
        )


def _iso(moment: datetime) -> str:
    return moment.astimezone(pendulum.UTC).isoformat(timespec="seconds")
