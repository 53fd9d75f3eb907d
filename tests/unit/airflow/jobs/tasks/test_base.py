"""What ends a task of a job at once, and what Airflow may try again."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from dmls_core.airflow.jobs.tasks import base
from dmls_core.airflow.jobs.tasks.base import JobRun, JobTask
from dmls_core.errors import DataError, RejectedModelError, ServingError


class Failing(JobTask):
    """A task that fails with an error of the test's choice."""

    error: Exception

    def run_job(self, run: JobRun) -> Any:  # noqa: ARG002 - of the base class
        raise self.error


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (DataError("too few rows"), AirflowFailException),
        (RejectedModelError("trees.tl differs from the file that the trainer wrote"), AirflowFailException),
        (ServingError("Triton does not answer"), ServingError),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_an_error_that_a_retry_would_meet_again_is_final(
    error: Exception, raised: type[Exception], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(base, "open_run", lambda _: None)
    task = Failing(task_id="stage")
    task.error = error

    with pytest.raises(raised, match=str(error)):
        task.execute({})
