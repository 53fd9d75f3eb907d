"""Read the trainer's answer from the run's folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from dmls_core.airflow.job import Job
from dmls_core.airflow.run_files import read_result
from dmls_core.errors import ObjectMissingError, RunnerError
from dmls_core.store import Store


def answer(job: Job, store: Store, plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the task tells of a trainer that ended well.

    Raises:
        RunnerError: it led and left no result.
    """
    if plan["worker"]:
        return {"worker": plan["worker"]}
    result = read_result(job, store)
    return {name: result[name] for name in ("score", "metric", "model", "engine")}


def runner_file(plan: Mapping[str, Any]) -> str:
    """Return the name of the file that says how a trainer was run."""
    return f"runner-{plan['worker']}.json" if plan["worker"] else "runner.json"


def raise_failure(job: Job, store: Store, ending: str, plan: Mapping[str, Any], context: Context) -> None:
    """Raise what the trainer's ``error.json`` says, or ``ending`` where it left none.

    Raises:
        AirflowFailException: the user's input is wrong; no retry would help.
        AirflowSkipException: it was a helper, again and again: the leader does without it.
        RunnerError: anything else.
    """
    if plan["worker"]:
        task = context["task_instance"]
        reason = f"the trainer {ending}: see this task's log; the others go on without it"
        if task.try_number <= task.max_tries:
            raise RunnerError(reason)
        raise AirflowSkipException(reason)
    try:
        error = json.loads(store.get(job.run_file("error.json")))
    except ObjectMissingError as missing:
        raise RunnerError(f"the trainer {ending} without an answer: see this task's log") from missing
    if error["exit_code"] == 1:
        raise AirflowFailException(error["message"])
    raise RunnerError(f"the trainer {ending}: {error['message']}")
