"""Which data a run of a job with intervals trains on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import pendulum
from airflow.timetables.base import DataInterval

from dmls_core.airflow.jobs.grid import Grid
from dmls_core.errors import DataError, ValidationIssue
from dmls_core.intake import Partition, choose_data, find_partitions, group_submissions, partitions_between
from dmls_core.spec import Spec
from dmls_core.store import DataObject, JobRecord, ObjectInfo, Store, layout, run_key


@dataclass(frozen=True, slots=True)
class RunInputs:
    """What a run reads: chosen once, by its first task, and kept with the run.

    A run of a job without intervals has them only where a user changed something for it.

    Attributes:
        run_key: hash of spec, ETags and interval.
        data: the objects, in order of keys.
        interval: its ends, ISO 8601 in UTC; ``None`` for data that is of no interval.
        since: beginning of the window, ISO 8601 in UTC; ``None``: all rows until the interval's end.
    """

    run_key: str
    data: tuple[DataObject, ...]
    interval: tuple[str, str] | None
    since: str | None

    def as_json(self) -> dict[str, Any]:
        """Return what ``from_json`` takes."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> RunInputs:
        """Build it from what ``as_json`` returned."""
        ends = fields["interval"]
        return cls(
            run_key=fields["run_key"],
            data=tuple(DataObject(**item) for item in fields["data"]),
            interval=(ends[0], ends[1]) if ends else None,
            since=fields["since"],
        )


@dataclass(frozen=True)
class Chooser:
    """Chooses the data of runs of one version of a job.

    Args:
        store: holds what was dropped.
        record: the version.
        spec: its spec.
        grid: the intervals.
    """

    store: Store
    record: JobRecord
    spec: Spec
    grid: Grid

    @property
    def folder(self) -> str:
        """Key of the job's folder."""
        return layout.incoming_folder(self.record.team, self.record.name)

    def partitions(self) -> list[Partition]:
        """Return the partitions that have arrived, in order of time; none where the job has no pattern."""
        if self.spec.partitions is None:
            return []
        listing = self.store.list(self.folder + self.spec.partitions.prefix)
        return find_partitions(listing, self.folder, self.spec.partitions, self.spec.timezone)

    def latest_interval(self, moment: pendulum.DateTime) -> DataInterval:
        """Return the last interval that has ended at ``moment`` and has data.

        Where no interval with data has ended, it is that of the newest partition, as far as it has come;
        and where nothing says which interval has data, the last one that has ended.
        """
        partitions = self.partitions()
        for partition in reversed(partitions):
            interval = self._around(partition)
            if interval.end <= moment:
                return interval
        return self._around(partitions[-1]) if partitions else self.grid.before(moment)

    def interval_of_record(self) -> DataInterval | None:
        """Return the interval of the partition that this version was admitted with, if that is so."""
        admitted = {item.key for item in self.record.data}
        own = [found for found in self.partitions() if found.file.key in admitted]
        return self._around(own[-1]) if own else None

    def choose(self, interval: DataInterval) -> RunInputs | None:
        """Return what a run for ``interval`` reads; ``None`` if its partition has not arrived.

        Raises:
            DataError: the data that was admitted is gone or was replaced.
        """
        window = self.spec.data.window
        since = None if window == "all" else self.grid.window(interval, window)
        if self.spec.partitions:
            arrived = self.partitions()
            if not partitions_between(arrived, interval.start, interval.end):
                return None
            files: Iterable[ObjectInfo] = (
                found.file for found in partitions_between(arrived, since, interval.end)
            )
            data = [DataObject(found.key, found.etag, found.size) for found in files]
        elif self.record.data:
            data = list(self.record.data)
            check_unchanged(self.store, data)
        else:
            data = present_data(self.store, self.record, self.spec)
        data.sort(key=lambda item: item.key)
        return RunInputs(
            run_key=run_key(
                self.record.spec_sha256, (item.etag for item in data), (interval.start, interval.end)
            ),
            data=tuple(data),
            interval=(_iso(interval.start), _iso(interval.end)),
            since=None if since is None else _iso(since),
        )

    def _around(self, partition: Partition) -> DataInterval:
        """Return the interval that a partition is of: the one within which it ends."""
        end = pendulum.instance(partition.end)
        interval = self.grid.before(end)
        return interval if interval.end == end else self.grid.after(interval)


def choose_whole(store: Store, record: JobRecord, spec: Spec) -> RunInputs:
    """Return what a run reads that is for no interval: what was admitted, or what its spec names now.

    Args:
        store: holds what was dropped.
        record: the version; without data where the run is to look for its own.
        spec: the run's.

    Raises:
        DataError: it is not there, or was replaced.
    """
    if record.data:
        check_unchanged(store, record.data)
    data = tuple(record.data or present_data(store, record, spec))
    key = run_key(record.spec_sha256, (item.etag for item in data))
    return RunInputs(run_key=key, data=data, interval=None, since=None)


def present_data(store: Store, record: JobRecord, spec: Spec) -> list[DataObject]:
    """Return the files that a spec names, as they are now.

    Raises:
        DataError: there are none.
    """
    folder = layout.incoming_folder(record.team, record.name)
    for submission in group_submissions(store.list(folder)):
        if (submission.team, submission.job) == (record.team, record.name):
            chosen = choose_data(submission, spec)
            if chosen:
                return [DataObject(found.key, found.etag, found.size) for found in chosen]
    named = f" that [data] path names ({spec.data.path})" if spec.data.path else ""
    raise DataError(ValidationIssue(f"the data{named} is no longer there", key=folder, hint="drop it again"))


def check_unchanged(store: Store, data: Iterable[DataObject]) -> None:
    """Check that objects are those that were admitted.

    Raises:
        DataError: one is gone or was replaced since.
    """
    issues = []
    for item in data:
        found = store.head(item.key)
        if found is None:
            issues.append(
                ValidationIssue(
                    "the data is no longer there", key=item.key, hint="drop it again: that makes a new run"
                )
            )
        elif found.etag != item.etag:
            issues.append(
                ValidationIssue(
                    "the data was replaced after this run's submission was accepted",
                    key=item.key,
                    found=found.etag,
                    expected=item.etag,
                    hint="the new data has a run of its own",
                )
            )
    if issues:
        raise DataError(issues)


def check_size(data: Iterable[DataObject], most: int) -> None:
    """Check that the objects together are not too large.

    Raises:
        DataError: they have more than ``most`` bytes.
    """
    total = sum(item.size for item in data)
    if total > most:
        raise DataError(
            ValidationIssue(
                "the data of this window is too large",
                key="data.window",
                found=f"{total:,} bytes",
                expected=f"at most {most:,} bytes",
                hint="take fewer intervals, or ask the platform's team to raise the limit",
            )
        )


def _iso(moment: datetime) -> str:
    return moment.astimezone(pendulum.UTC).isoformat(timespec="seconds")
