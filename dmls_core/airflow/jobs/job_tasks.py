"""The tasks of a job's DAG before the decision, and their base class: validate, plan, evaluate, register."""

from __future__ import annotations

import json
import tempfile
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pendulum
from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger
from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException
from airflow.timetables.base import DataInterval

from dmls_core.airflow.intake.triggers import PartitionTrigger
from dmls_core.airflow.jobs.job import INPUTS, Job, download_run, job_of, read_result
from dmls_core.airflow.jobs.run_inputs import (
    InputSelector,
    RunInputs,
    check_size,
    check_unchanged,
    select_without_interval,
)
from dmls_core.airflow.jobs.status import StatusReporter, report_failure
from dmls_core.airflow.links import LINKS
from dmls_core.airflow.runners.trainer import choose_engine, nodes_environment, study_environment
from dmls_core.airflow.settings import AirflowSettings, airflow_settings, open_repository, open_root
from dmls_core.airflow.task_id import TaskId
from dmls_core.errors import ConflictError, RunnerError, UserError
from dmls_core.settings import IntakeLimits
from dmls_core.store import Store, layout
from dmls_core.store.waiting_queue import enqueue
from dmls_core.tracking.registry import INTERVAL_END_TAG

if TYPE_CHECKING:
    from dmls_core.serving import Deployment
    from dmls_core.spec import Spec


@dataclass(frozen=True)
class JobRun:
    """The run that a task belongs to."""

    job: Job
    context: Context
    settings: AirflowSettings

    @cached_property
    def store(self) -> Store:
        """The store at the platform's root."""
        return open_root(self.settings)

    @cached_property
    def reporter(self) -> StatusReporter:
        """Writer of ``_status`` for this run."""
        return StatusReporter.of(self.job, self.store, self.context["run_id"])

    @contextmanager
    def deployment(self) -> Iterator[Deployment]:
        """Yield the deployment of the job's model."""
        from dmls_core.serving import Deployment, triton_servers

        settings = self.settings
        with triton_servers(settings.triton_http, settings.triton_grpc, key=settings.load_key()) as servers:
            yield Deployment(open_repository(settings), servers, self.job.model_name)

    def result_of(self, task_id: TaskId) -> Any:
        """Return the result of another task of this run."""
        return self.context["task_instance"].xcom_pull(task_ids=task_id.value)


def open_run(context: Context) -> JobRun:
    """Return the run of the current task."""
    return JobRun(job_of(context), context, airflow_settings())


class JobTask(BaseOperator):
    """A task of a job's DAG. It has no templated fields, so nothing from a spec is ever rendered."""

    template_fields = ()

    def __init__(self, **kwargs: Any) -> None:
        # Not in the DAG's default_args: Airflow would read the callback's source for each DAG.
        super().__init__(on_failure_callback=report_failure, **kwargs)

    def execute(self, context: Context) -> Any:
        """Run the task; a user's mistake fails it at once, any other error may be retried."""
        try:
            return self.run_job(open_run(context))
        except UserError as error:
            raise AirflowFailException(str(error)) from error

    @abstractmethod
    def run_job(self, run: JobRun) -> Any:
        """Run the task and return its result, which must be JSON."""


POLL_SECONDS = 10.0
"""Interval between two checks for a partition, unless the platform polls less often."""


SOURCE_POLL = timedelta(minutes=1)
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
        own = run.job.changed or spec.data.source is not None
        return select_without_interval(run.store, record, spec) if own else None

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
                trigger=TimeDeltaTrigger(SOURCE_POLL),
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
                poll_seconds=max(POLL_SECONDS, run.settings.poll_seconds),
            ),
            method_name="resume",
        )

    def _keep(self, run: JobRun, inputs: RunInputs) -> None:
        for item in inputs.data:
            self.log.info("reading %s, ETag %s", item.key, item.etag)
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


class PlanOperator(JobTask):
    """Choose the engine and the champion to compare with; ``search`` is mapped over the result."""

    def run_job(self, run: JobRun) -> list[dict[str, Any]]:
        """Return one entry for each worker of the search; the first is the leader's."""
        spec = run.job.spec
        # Checked here, so that a spec that this platform cannot run fails before it waits for a slot.
        shared = study_environment(run.job)
        nodes_environment(run.job, run.settings)
        engine = choose_engine(spec, run.settings.gpus)
        models = ", ".join(search.name for search in spec.models)
        workers = min(spec.search.max_workers, spec.n_trials) if shared else 1
        auto = spec.search.workers == "auto"
        trainers = f"up to {workers}" if auto else workers
        self.log.info("%s trials of %s on the %s engine by %s", spec.n_trials, models, engine, trainers)
        plan: list[dict[str, Any]] = [{"worker": 0, "engine": engine, "helpers": workers - 1}]
        plan += [{"worker": worker, "engine": engine, "auto": auto} for worker in range(1, workers)]
        if champion := _champion(run):
            for entry in plan:  # the leader also compares with it
                entry["champion"] = champion
        enqueue(run.store, engine, run.job.team, run.job.name, run.job.run_key)
        run.reporter.running(
            "The run waits for a trainer. The job's page and `dmls show` have its place in the queue."
        )
        return plan


def _champion(run: JobRun) -> dict[str, Any] | None:
    """Return version and run key of the champion to compare with; ``None`` if there is none."""
    from dmls_core.tracking.registry import champion_of

    found = champion_of(run.settings.mlflow_uri, run.job.model_name)
    if found is None or found.run_key == run.job.run_key:
        return None
    return {"version": found.version, "run_key": found.run_key}


class EvaluateOperator(JobTask):
    """Check the run's files against their checksums and the score against ``[deploy] min_metric``."""

    def run_job(self, run: JobRun) -> dict[str, Any]:
        """Return the candidate's score, metric and comparison, and whether it is good enough to deploy."""
        result = read_result(run.job, run.store)
        for artifact in result["artifacts"]:
            found = run.store.head(run.job.run_file(artifact["name"]))
            if found is None or found.size != artifact["bytes"]:
                raise RunnerError(
                    f"{artifact['name']} of the run is not the file that the trainer wrote; clear `search`"
                )
        floor = run.job.spec.deploy.min_metric
        score, metric = result["score"], result["metric"]
        enough = floor is None or (score >= floor if result["direction"] == "maximize" else score <= floor)
        run.reporter.running(f"trained: {metric} {score:.4f} on the holdout")
        return {
            "score": score,
            "metric": metric,
            "direction": result["direction"],
            "good_enough": enough,
            "comparison": result.get("comparison"),
        }


SOURCE_VERSION_TAG = "dmls.source_version"
"""Tag with the version or snapshot id of the lake table that the run has read."""

CHANGES_TAG = "dmls.changes"
"""Tag with a user's changes for the run, as JSON."""


class RegisterOperator(JobTask):
    """Log the run, its trials and its model to MLflow, and make the model's version the challenger."""

    operator_extra_links = LINKS

    def run_job(self, run: JobRun) -> dict[str, Any]:
        """Return the MLflow run's id, the addresses of its page and report, and the model's version."""
        from dmls_core.serving.deployment.signed_models import check_signature
        from dmls_core.tracking.connection import report_url
        from dmls_core.tracking.runs import log_run

        result = read_result(run.job, run.store)
        run.reporter.running("recording the run in MLflow")
        with tempfile.TemporaryDirectory(prefix="dmls-register-") as scratch:
            folder = download_run(run.job, run.store, Path(scratch))
            check_signature(folder / "model", run.job.model_name, f"the model of run {run.job.run_key}")
            tracked = log_run(
                run.settings.mlflow_uri,
                result,
                folder,
                spec=run.job.spec.as_json(),
                airflow_url=run.reporter.links["airflow"],
                public_uri=run.settings.mlflow_public_uri,
                tags=interval_tags(run.job),
                challenger=not run.job.backfill or run.job.deploy,
            )
        self.log.info("MLflow run: %s", tracked.url)
        return {
            "run_id": tracked.run_id,
            "url": tracked.url,
            "report": report_url(tracked.url),
            "model_version": tracked.model_version,
        }


def interval_tags(job: Job) -> dict[str, str]:
    """Return tags for the run's interval, its data, and a user's changes."""
    tags = {CHANGES_TAG: json.dumps(dict(job.changes))[:5000]} if job.changed else {}
    if job.inputs and job.inputs.source_version is not None:
        tags[SOURCE_VERSION_TAG] = str(job.inputs.source_version)
    if job.interval is None:
        return tags
    start, end = job.interval
    return tags | {
        "dmls.interval_start": start,
        INTERVAL_END_TAG: end,
        "dmls.window": str(job.spec.data.window),
        "dmls.backfill": "true" if job.backfill else "false",
        "dmls.data": ", ".join(item.key.rpartition("/")[2] for item in job.data)[:5000],
    }
