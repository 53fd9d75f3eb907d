"""What a runner starts: the trainer's command line, labels and queue."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowFailException

from dmls_core.airflow.runners.runner import raise_failure, runner_file
from dmls_core.airflow.runners.trainer import leave_queue, trainer_arguments, trainer_labels
from dmls_core.errors import RunnerError
from dmls_core.settings import QUEUE_VARIABLE
from dmls_core.store import open_store
from dmls_core.store.waiting_queue import has_waiting_run


def test_the_password_of_the_study_is_in_no_argument_or_label(job, plan, connection, tmp_path: Path):
    store = open_store(str(tmp_path))
    arguments = [trainer_arguments(job(2), store, entry) for entry in plan(job(2))]
    labels = trainer_labels(job(2), "run", "search", 1, 1)
    assert "secret" not in json.dumps([arguments, labels])
    assert "--worker" not in arguments[0]
    assert arguments[1][arguments[1].index("--worker") + 1] == "1"
    assert labels["dmls.worker"] == "1"


def test_a_run_waits_in_the_queue_until_its_leader_starts(job, plan, connection, tmp_path: Path):
    run, store = job(2), open_store(str(tmp_path))
    leader, worker = plan(run)

    environment = leave_queue(run, store, worker)
    assert environment == {QUEUE_VARIABLE: f"{store.url}/waiting/cpu"}
    queue = open_store(environment[QUEUE_VARIABLE])
    assert has_waiting_run(queue, min_wait=0)

    assert leave_queue(run, store, leader) == {}
    assert not has_waiting_run(queue, min_wait=0)


def test_the_error_of_an_earlier_try_is_not_reported_for_a_killed_trainer(job, tmp_path: Path):
    run, store, leader = job(), open_store(str(tmp_path)), {"worker": 0, "engine": "cpu"}
    store.put(run.run_file("error.json"), b'{"exit_code": 1, "message": "too many rows"}')
    with pytest.raises(AirflowFailException, match="too many rows"):
        raise_failure(run, store, "was killed", leader, {})

    leave_queue(run, store, leader)

    with pytest.raises(RunnerError, match=r"was killed and wrote no error\.json"):
        raise_failure(run, store, "was killed", leader, {})


def test_each_worker_has_a_runner_file_of_its_own():
    assert (runner_file(0), runner_file(1)) == ("runner.json", "runner-1.json")
