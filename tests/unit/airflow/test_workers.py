"""Several trainers of one run in Airflow: the plan, the command line, the study's address, the priority."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowFailException, AirflowNotFoundException, AirflowSkipException

from dmls_core.airflow.job import Job
from dmls_core.airflow.placement import choose_engine, trainer_engine
from dmls_core.airflow.priority import LEADER_WEIGHT, WORKER_WEIGHT, LeaderPriorityStrategy
from dmls_core.airflow.runners.command import take_turn, trainer_arguments, trainer_labels
from dmls_core.airflow.runners.outcome import answer, raise_failure, runner_file
from dmls_core.airflow.runners.process import ProcessTrainerOperator
from dmls_core.airflow.settings import AirflowSettings
from dmls_core.airflow.study_database import check_reachable, study_environment, study_url
from dmls_core.airflow.tasks.plan import PlanOperator
from dmls_core.errors import RunnerError, SpecError
from dmls_core.models import load_spec
from dmls_core.settings import QUEUE_VARIABLE, STUDY_VARIABLE
from dmls_core.store import open_store
from dmls_core.store.waiting_queue import has_waiting_run

SPEC = """model = {models}
n_trials = 3
[columns]
target = "y"
[search]
workers = {workers}
"""
FOREST = '"random-forest-classifier"'
BOTH = '["random-forest-classifier", "lightgbm-classifier"]'


@pytest.fixture
def job(accept) -> Callable[..., Job]:
    """Accept a job as admission would."""

    def _job(workers: int = 2, models: str = FOREST) -> Job:
        content = SPEC.format(models=models, workers=workers).encode()
        return Job(record=accept("lab", "iris", spec=content), spec=load_spec(content))

    return _job


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_DMLS_STUDY", "postgres://me:secret@db.example.com:5433/studies")


@pytest.fixture
def plan(tmp_path: Path) -> Callable[[Job], list[dict[str, Any]]]:
    """Plan a run with the store at the test's folder."""

    def _plan(of: Job) -> list[dict[str, Any]]:
        settings = SimpleNamespace(gpus=0, mlflow_uri="")
        run = SimpleNamespace(job=of, settings=settings, store=open_store(str(tmp_path)))
        return PlanOperator(task_id="plan").run_job(run)

    return _plan


def test_the_plan_has_an_entry_for_each_worker_but_none_without_a_trial(job, plan, connection):
    assert plan(job(2)) == [{"worker": 0, "engine": "cpu"}, {"worker": 1, "engine": "cpu"}]
    assert len(plan(job(50))) == 3


def test_several_workers_need_a_study_and_the_user_is_told_so(job, plan, monkeypatch: pytest.MonkeyPatch):
    def missing(_: str) -> Connection:
        raise AirflowNotFoundException("no such connection")

    monkeypatch.setattr(Connection, "get", missing)

    assert plan(job(1)) == [{"worker": 0, "engine": "cpu"}]
    with pytest.raises(SpecError, match="no database for a search with several workers") as caught:
        plan(job(2))
    (issue,) = caught.value.issues
    assert (issue.key, issue.found, issue.expected) == ("search.workers", "2", "1")
    assert "dmls_study" in issue.hint


def test_the_studys_address_is_in_the_environment_and_nowhere_else(job, plan, connection, tmp_path: Path):
    environment = study_environment(job(2))

    assert environment == {STUDY_VARIABLE: "postgresql+psycopg://me:secret@db.example.com:5433/studies"}
    assert study_environment(job(1)) == {}
    store = open_store(str(tmp_path))
    arguments = [trainer_arguments(job(2), store, entry) for entry in plan(job(2))]
    labels = trainer_labels(job(2), "run", "search", 1, 1)
    assert "secret" not in json.dumps([arguments, labels])
    assert "--worker" not in arguments[0]
    assert arguments[1][arguments[1].index("--worker") + 1] == "1"
    assert labels["dmls.worker"] == "1"


def test_a_run_waits_in_line_until_its_leader_starts(job, plan, connection, tmp_path: Path):
    run, store = job(2), open_store(str(tmp_path))
    leader, helper = plan(run)

    told = take_turn(run, store, helper)
    assert told == {QUEUE_VARIABLE: f"{store.url}/waiting/cpu"}
    queue = open_store(told[QUEUE_VARIABLE])
    assert has_waiting_run(queue, min_wait=0)

    assert take_turn(run, store, leader) == {}
    assert not has_waiting_run(queue, min_wait=0)


@pytest.mark.parametrize(
    ("connection", "url"),
    [
        (
            {"host": "db", "login": "a@b", "password": "p/w:x", "schema": "s"},
            "postgresql+psycopg://a%40b:p%2Fw%3Ax@db/s",
        ),
        (
            {"host": "/run/pg", "port": 5433, "login": "u", "password": "p", "schema": "s"},
            "postgresql+psycopg://u:p@/s?host=%2Frun%2Fpg&port=5433",
        ),
        (
            {"host": "db", "login": "u", "password": "p", "schema": "s", "extra": '{"sslmode": "require"}'},
            "postgresql+psycopg://u:p@db/s?sslmode=require",
        ),
    ],
)
def test_a_connection_becomes_an_address_that_sqlalchemy_reads(connection, url):
    import sqlalchemy

    made = study_url(Connection(conn_id="dmls_study", conn_type="postgres", **connection))

    assert made == url
    read = sqlalchemy.make_url(made)
    assert (read.username, read.password) == (connection["login"], connection["password"])


@pytest.mark.parametrize(
    ("address", "network", "reason"),
    [
        ("u:secret@db.example.com:5432/s", "bridge", ""),
        ("u:secret@127.0.0.1:5432/s", "host", ""),
        ("u:secret@127.0.0.1:5432/s", "bridge", "is the container itself"),
        ("u:secret@localhost/s", "dmls_default", "is the container itself"),
        ("u:secret@/s?host=%2Frun%2Fpg", "host", "/run/pg"),
    ],
)
def test_an_address_that_no_container_reaches_is_refused(address: str, network: str, reason: str):
    environment = {STUDY_VARIABLE: f"postgresql+psycopg://{address}"}

    if not reason:
        check_reachable(environment, network)
        check_reachable({}, network)
        return
    with pytest.raises(RunnerError, match=reason) as caught:
        check_reachable(environment, network)
    assert "secret" not in str(caught.value)


def test_the_first_trainer_of_every_run_goes_before_the_second_of_any():
    weights = [
        LeaderPriorityStrategy().get_weight(SimpleNamespace(map_index=index)) for index in (-1, 0, 1, 5)
    ]
    assert weights == [LEADER_WEIGHT, LEADER_WEIGHT, WORKER_WEIGHT, WORKER_WEIGHT]
    assert LEADER_WEIGHT > WORKER_WEIGHT


def test_the_scheduler_reads_that_priority_from_the_serialised_dag(accept, bundle):
    from airflow.serialization.serialized_objects import DagSerialization

    from dmls_core.airflow import job_dag

    accept("lab", "iris", spec=SPEC.format(models=BOTH, workers=2).encode())
    made = bundle()
    made.initialize()
    (path,) = [p for p in made.path.glob("shard_*.json") if "dmls.lab.iris" in p.read_text()]
    dag = job_dag.load_shard(str(path))["dmls.lab.iris"]

    again = DagSerialization.from_dict(json.loads(json.dumps(DagSerialization.to_dict(dag))))

    assert isinstance(again.get_task("search").weight_rule, LeaderPriorityStrategy)
    assert again.get_task("evaluate").trigger_rule == "none_failed_min_one_success"


def test_each_of_several_models_chooses_its_engine_where_there_is_a_gpu(job):
    both, forest = job(1, BOTH).spec, job(1).spec
    assert choose_engine(both, gpus=1) == "gpu"
    assert trainer_engine(both, "gpu") == "auto"
    assert trainer_engine(both, "cpu") == "cpu"
    assert trainer_engine(forest, "gpu") == "gpu"
    assert choose_engine(both, gpus=0) == "cpu"


def test_a_helper_answers_without_a_result_and_its_last_failure_skips_it(job, tmp_path: Path):
    helper, store = {"worker": 1, "engine": "cpu"}, open_store(str(tmp_path))

    def context(try_number: int) -> dict[str, object]:
        return {"task_instance": SimpleNamespace(try_number=try_number, max_tries=3)}

    assert answer(job(), store, helper) == {"worker": 1}
    assert (runner_file(helper), runner_file({"worker": 0})) == ("runner-1.json", "runner.json")
    with pytest.raises(RunnerError, match="was killed"):
        raise_failure(job(), store, "was killed", helper, context(3))
    with pytest.raises(AirflowSkipException, match="go on without it"):
        raise_failure(job(), store, "was killed", helper, context(4))


def test_a_trainer_that_is_killed_is_not_told_of_by_the_error_of_an_earlier_try(job, tmp_path: Path):
    run, store, leader = job(), open_store(str(tmp_path)), {"worker": 0, "engine": "cpu"}
    store.put(run.run_file("error.json"), b'{"exit_code": 1, "message": "too many rows"}')
    with pytest.raises(AirflowFailException, match="too many rows"):
        raise_failure(run, store, "was killed", leader, {})

    take_turn(run, store, leader)

    with pytest.raises(RunnerError, match="was killed without an answer"):
        raise_failure(run, store, "was killed", leader, {})


def test_a_trainer_knows_the_limits_of_data_and_no_other_setting_of_its_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nenv > environment\n")
    python.chmod(0o700)
    monkeypatch.setenv("DMLS_DATA_CLASSES", "2000")
    monkeypatch.setenv("DMLS_TRITON_KEY", "secret")
    trainer = ProcessTrainerOperator(plan={"worker": 0, "engine": "cpu"}, task_id="search")

    code = trainer._run(AirflowSettings(str(tmp_path), trainer_python=str(python)), [], 2**30, tmp_path)

    assert code == 0
    known = (tmp_path / "environment").read_text()
    assert "DMLS_DATA_CLASSES=2000" in known.splitlines()
    assert "secret" not in known
