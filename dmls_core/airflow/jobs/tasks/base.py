"""What the tasks of a job's DAG share: their base class, and the run that a task belongs to."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException

from dmls_core.airflow.runs.job import Job, job_of
from dmls_core.airflow.runs.status import StatusReporter, report_failure
from dmls_core.airflow.settings import AirflowSettings, airflow_settings, open_repository, open_root
from dmls_core.airflow.task_id import TaskId
from dmls_core.errors import RejectedModelError, UserError
from dmls_core.store import Store

if TYPE_CHECKING:
    from dmls_core.serving import Deployment


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
        """Run the task; an error that every retry would meet fails it at once."""
        try:
            return self.run_job(open_run(context))
        except (UserError, RejectedModelError) as error:
            raise AirflowFailException(str(error)) from error

    @abstractmethod
    def run_job(self, run: JobRun) -> Any:
        """Run the task and return its result, which must be JSON."""
