"""The task ``validate``: check the data of a run, or select it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

import pendulum
from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException
from airflow.timetables.base import DataInterval

from dmls_core.airflow.jobs.partition_trigger import PartitionTrigger
from dmls_core.airflow.jobs.tasks.base import JobRun, JobTask, open_run
from dmls_core.airflow.runs.job import INPUTS
from dmls_core.airflow.runs.run_inputs import (
    InputSelector,
    RunInputs,
    check_size,
    check_unchanged,
    select_without_interval,
)
from dmls_core.errors import ConflictError
from dmls_core.settings import IntakeLimits
from dmls_core.store import layout
from dmls_core.visible_text import visible

if TYPE_CHECKING:
    from dmls_core.spec import Spec


_POLL_SECONDS = 10.0
"""Interval between two checks for a partition, unless the platform polls less often."""


_SOURCE_POLL = timedelta(minutes=1)
"""Interval between two looks for a partition of a source."""


class ValidateOperator(JobTask):
    """Check that the data objects are those of the admitted version, or choose those of the interval.

    It copies the rows of ``[data.source]`` to the store, as the data of the run. If a partition has not
    arrived, the task waits in the triggerer, without a worker slot. Great Expectations checks the content in
    the trainer, parallel to the search: its import takes seconds in every run.
    """

    def run_job(self, run: JobRun) -> dict[str, Any]:
        """Return the number of objects and bytes; raise ``DataError`` if an admitted object has changed."""
        run.reporter.running("validating the data")
        inputs = self._choose(run)
        if inputs is None:
            data = run.job.record.data
            check_unchanged(run.store, data)
        else:
            data = inputs.data
            check_size(data, IntakeLimits.from_environment().data_bytes)
            self._keep(run, inputs)
        sizes = [item.size for item in data]
        return {"objects": len(sizes), "bytes": sum(sizes)}

    def resume(self, context: Context, event: dict[str, Any]) -> Any:
        """Continue after the wait for a partition."""
        if not event["arrived"]:
            raise _too_late(open_run(context).job.spec)
        return self.execute(context)

    def look_again(self, context: Context, event: Any, deadline: str) -> Any:
        """Look for a partition of a source again."""
        self._deadline = datetime.fromisoformat(deadline)
        return self.execute(context)

    _deadline: datetime | None = None
    """End of the wait for a partition of a source, once it has begun."""

    def _choose(self, run: JobRun) -> RunInputs | None:
        """Return the run's inputs if they differ from the admitted data; wait for them if needed."""
        record, spec, intervals = run.job.record_of_run, run.job.spec, run.job.intervals
        backfill = run.job.backfill
        selector = InputSelector(run.store, record, spec, intervals, backfill) if intervals else None
        interval = _interval(run, selector) if selector else None
        if selector and interval:
            return selector.select(interval) or self._wait(run, selector, interval)
        if spec.data.source:
            run.reporter.running(f"reading {spec.data.source.label}")
        has_inputs = run.job.changed or spec.data.source is not None
        return select_without_interval(run.store, record, spec) if has_inputs else None

    def _wait(self, run: JobRun, selector: InputSelector, interval: DataInterval) -> NoReturn:
        spec, pattern = run.job.spec, run.job.spec.partitions
        if pattern is None:
            raise ValueError("only partitions can be waited for")
        deadline = self._deadline or datetime.now(UTC) + timedelta(seconds=spec.data.timeout)
        if datetime.now(UTC) >= deadline:
            raise _too_late(spec)
        name = pattern.example(interval.start.in_timezone(spec.timezone))
        message = f"waiting for {name}, until {deadline:%Y-%m-%d %H:%M} UTC"
        self.log.info("%s", message)
        run.reporter.running(message)
        if spec.data.source:
            # Only tasks have the connections of sources.
            self.defer(
                trigger=TimeDeltaTrigger(_SOURCE_POLL),
                method_name="look_again",
                kwargs={"deadline": deadline.isoformat()},
            )
        self.defer(
            trigger=PartitionTrigger(
                root=run.settings.root,
                aws_conn_id=run.settings.aws_conn_id,
                folder=selector.folder,
                path=pattern.text,
                timezone=spec.timezone,
                start=interval.start.isoformat(),
                end=interval.end.isoformat(),
                deadline=deadline.isoformat(),
                poll_seconds=max(_POLL_SECONDS, run.settings.poll_seconds),
            ),
            method_name="resume",
        )

    def _keep(self, run: JobRun, inputs: RunInputs) -> None:
        for item in inputs.data:
            self.log.info("reading %s, ETag %s", visible(item.key), item.etag)
        if inputs.source_version is not None and run.job.spec.data.source:
            self.log.info("of %s at version %s", run.job.spec.data.source.label, inputs.source_version)
        run.context["task_instance"].xcom_push(INPUTS, inputs.as_json())
        folder = layout.run_folder(run.job.team, run.job.name, inputs.run_key)
        document = {"schema": 1, **inputs.as_json(), "run_id": run.context["run_id"]}
        if run.job.changed:
            document["changes"] = dict(run.job.changes)
            self.log.info("changed for this run: %s", json.dumps(run.job.changes))
            run.store.put(folder + layout.SPEC, run.job.spec.canonical())
        try:
            run.store.create(folder + layout.RUN, json.dumps(document, indent=1).encode())
        except ConflictError:
            self.log.info("the run %s was started before: it resumes", inputs.run_key)


def _too_late(spec: Spec) -> AirflowFailException:
    return AirflowFailException(
        f"no partition of the interval arrived within [data] timeout ({spec.data.timeout:g} s): upload it "
        "and clear this task, or raise the timeout"
    )


def _interval(run: JobRun, selector: InputSelector) -> DataInterval | None:
    """Return the interval of the schedule, a backfill or the user's date, else that of the newest data."""
    dag_run = run.context["dag_run"]
    start, end = dag_run.data_interval_start, dag_run.data_interval_end
    if start is not None and end is not None and start < end:
        return DataInterval(pendulum.instance(start), pendulum.instance(end))
    if not run.job.spec.chosen_by_run:
        return selector.admitted_interval()
    return selector.latest_interval(pendulum.instance(dag_run.run_after))
