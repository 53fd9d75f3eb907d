"""Read the trainer's answer from the run's folder."""

from __future__ import annotations

import json
from typing import Any

from airflow.sdk.exceptions import AirflowFailException

from dmls_core.errors import ObjectMissingError, RunnerError
from dmls_core.orchestration.job import Job
from dmls_core.store import Store


def read_result(job: Job, store: Store) -> dict[str, Any]:
    """Return ``result.json`` of the job's run.

    Raises:
        RunnerError: the trainer wrote none.
    """
    try:
        result: dict[str, Any] = json.loads(store.get(job.run_file("result.json")))
    except ObjectMissingError as error:
        raise RunnerError("the trainer ended well but left no result.json: see this task's log") from error
    return result


def raise_failure(job: Job, store: Store, ending: str) -> None:
    """Raise what the trainer's ``error.json`` says, or ``ending`` where it left none.

    Raises:
        AirflowFailException: the user's input is wrong; no retry would help.
        RunnerError: anything else.
    """
    try:
        error = json.loads(store.get(job.run_file("error.json")))
    except ObjectMissingError as missing:
        raise RunnerError(f"the trainer {ending} without an answer: see this task's log") from missing
    if error["exit_code"] == 1:
        raise AirflowFailException(error["message"])
    raise RunnerError(f"the trainer {ending}: {error['message']}")
