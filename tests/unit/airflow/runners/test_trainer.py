"""Engine, command line and environment of trainers."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import SkipDownstreamTasks

from dmls_core.airflow.runners.docker.runner import DockerRunner
from dmls_core.airflow.runners.trainer import (
    KEY_LABEL,
    LEADER_LABEL,
    check_reachable,
    choose_engine,
    earlier_tries,
    make_trainer,
    node_trainers,
    nodes_environment,
    study_environment,
    study_url,
    trainer_arguments,
    trainer_engine,
    trainer_labels,
)
from dmls_core.airflow.runners.trainer_operator import raise_failure
from dmls_core.airflow.runners.trainer_trigger import _describe, runner_file
from dmls_core.airflow.runs.status import StatusReporter
from dmls_core.airflow.settings import AirflowSettings
from dmls_core.errors import RunnerError, SpecError
from dmls_core.settings import STUDY_VARIABLE
from dmls_core.store import open_store
from dmls_core.store.waiting_queue import waiting_since


def test_the_password_of_the_study_is_in_no_argument_or_label(job, plan, connection, tmp_path: Path):
    store = open_store(str(tmp_path))
    arguments = [trainer_arguments(job(2), store, entry) for entry in plan(job(2))]
    labels = trainer_labels(job(2), "s3://root", plan(job(2))[1], context())
    assert "secret" not in json.dumps([arguments, labels])
    assert "--worker" not in arguments[0]
    assert arguments[1][arguments[1].index("--worker") + 1] == "1"
    assert labels["dmls.worker"] == "1"


def context(run_id="run", try_number=1):
    return {"run_id": run_id, "task_instance": SimpleNamespace(task_id="search", try_number=try_number)}


def test_each_try_has_a_key_and_all_tries_of_a_trainer_share_its_beginning(job, plan, connection):
    leader, worker = plan(job(2))

    def key(entry, *arguments):
        return trainer_labels(job(2), "s3://root", entry, context(*arguments))[KEY_LABEL]

    first = key(leader)
    assert first == key(leader)
    assert len({first, key(leader, "run", 2), key(leader, "again"), key(worker)}) == 4
    same = earlier_tries(first)
    assert key(leader, "run", 2).startswith(same)
    assert key(leader, "again").startswith(same), "two runs of a job may share their files"
    assert not key(worker).startswith(same)


def test_embedded_platforms_on_one_machine_have_keys_of_their_own(job, plan, connection, monkeypatch):
    """A platform that ended its own trainer killed that of another one, of the same job and data."""
    entry, _ = plan(job(2))
    platforms = AirflowSettings(root="s3://dmls"), AirflowSettings(root="s3://other")

    def keys():
        return [trainer_labels(job(2), found.platform, entry, context())[KEY_LABEL] for found in platforms]

    alone = keys()
    monkeypatch.setenv("DMLS_PLATFORM_ID", "one")
    one = keys()
    monkeypatch.setenv("DMLS_PLATFORM_ID", "two")
    assert len({*alone, *one, *keys()}) == 6
    assert keys() == keys()


def test_a_run_waits_in_the_queue_of_its_engine(job, plan, connection, tmp_path: Path):
    run, store = job(2), open_store(str(tmp_path))
    plan(run)

    assert list(waiting_since(store, "cpu")) == [run.run_key]


def test_the_error_and_progress_of_an_earlier_try_are_not_reported_for_a_killed_trainer(job, tmp_path: Path):
    run, store, leader = job(1), open_store(str(tmp_path)), {"worker": 0, "engine": "cpu"}
    earlier = {"state": "searching", "finished": 24, "total": 150, "best": 0.9, "remaining_seconds": 7.0}
    store.put(run.run_file("progress.json"), json.dumps(earlier).encode())
    store.put(run.run_file("error.json"), b'{"exit_code": 1, "message": "too many rows"}')
    once = {"task_instance": attempt(1), "run_id": "r"}
    with pytest.raises(AirflowFailException, match="too many rows"):
        raise_failure(run, store, "was killed", leader, once)

    make_trainer(run, store, AirflowSettings(root=str(tmp_path), runner="process"), leader, {})

    with pytest.raises(RunnerError, match=r"was killed and wrote no error\.json"):
        raise_failure(run, store, "was killed", leader, once)
    now = json.loads(store.get(run.run_file("progress.json")))
    assert _describe(now) == "starting the trainer again"
    assert (now["finished"], now["remaining_seconds"]) == (24, None)


def test_with_a_role_a_trainer_gets_credentials_for_its_run_alone(job, tmp_path: Path, monkeypatch):
    run, store, leader = job(1), open_store("s3://bucket/root"), {"worker": 0, "engine": "cpu"}
    asked = []
    monkeypatch.setattr(store, "trainer_environment", lambda: {"AWS_ACCESS_KEY_ID": "platform"})
    monkeypatch.setattr(store, "delete", lambda _: None)
    monkeypatch.setattr(store, "get", lambda _: b"no progress")
    monkeypatch.setattr(
        store, "limited_environment", lambda *a, **k: asked.append((*a, k)) or {"A": "limited"}
    )

    def environment(role: str) -> dict[str, str]:
        settings = AirflowSettings(root=store.url, runner="docker", trainer_role=role)
        return make_trainer(run, store, settings, leader, {}).environment

    assert environment("")["AWS_ACCESS_KEY_ID"] == "platform"
    assert environment("arn:role")["A"] == "limited"
    ((role, access, options),) = asked
    job_folder = f"{run.team}/{run.name}/"
    assert (role, access.write) == ("arn:role", (f"runs/{job_folder}{run.run_key}/",))
    assert access.read == (
        run.spec_key,
        *(f"{kind}/{job_folder}" for kind in ("incoming", "sources", "runs")),
    )
    assert options["name"] == f"dmls-{run.run_key}"
    local = AirflowSettings(root=str(tmp_path), runner="process", trainer_role="arn:role")
    assert "A" not in make_trainer(run, open_store(str(tmp_path)), local, leader, {}).environment


def test_a_leader_without_another_try_ends_the_helpers_that_wait_for_slots(job, tmp_path: Path, monkeypatch):
    sent: list[SkipDownstreamTasks] = []
    supervisor = SimpleNamespace(send=sent.append)
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", supervisor, raising=False)
    run, store, plan = job("auto"), open_store(str(tmp_path)), {"worker": 0, "engine": "cpu", "helpers": 2}

    def fail(try_number: int) -> None:
        with pytest.raises(RunnerError, match="was killed"):
            raise_failure(
                run, store, "was killed", plan, {"task_instance": attempt(try_number), "run_id": "r"}
            )

    fail(try_number=3)
    assert sent == []
    fail(try_number=4)
    assert [message.tasks for message in sent] == [[("search", 1), ("search", 2)]]


def attempt(try_number: int) -> SimpleNamespace:
    return SimpleNamespace(try_number=try_number, max_tries=3)


def test_the_status_says_that_a_killed_trainer_is_started_again(job, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(StatusReporter, "running", lambda _, message: reported.append(message))
    reported: list[str] = []
    run, store, leader = job(1), open_store(str(tmp_path)), {"worker": 0, "engine": "cpu"}
    for number in (3, 4):
        context = {"task_instance": attempt(number), "run_id": "r"}
        with pytest.raises(RunnerError):
            raise_failure(run, store, "exited with code -9", leader, context)
    assert reported == [
        "The trainer exited with code -9. Airflow starts it again: it resumes at its last trial"
    ], "not after the last try"


def test_each_worker_has_a_runner_file_of_its_own():
    assert (runner_file(0), runner_file(1)) == ("runner.json", "runner-1.json")


def test_each_of_several_models_chooses_its_engine_if_there_is_a_gpu(job):
    both, forest = job(1, "random-forest-classifier", "lightgbm-classifier").spec, job(1).spec
    assert choose_engine(both, gpus=1) == "gpu"
    assert trainer_engine(both, "gpu") == "auto"
    assert trainer_engine(both, "cpu") == "cpu"
    assert trainer_engine(forest, "gpu") == "gpu"
    assert choose_engine(both, gpus=0) == "cpu"


def test_only_a_search_with_several_workers_gets_the_url(job, connection):
    environment = study_environment(job(2))
    assert environment == {STUDY_VARIABLE: "postgresql+psycopg://me:secret@db.example.com:5433/studies"}
    assert study_environment(job(1)) == {}
    assert study_environment(job("auto")) == environment


def test_nodes_need_a_runner_that_starts_them_or_a_cluster(job, monkeypatch: pytest.MonkeyPatch):
    one, two = job(1, "xgboost-classifier"), job(1, "xgboost-classifier", nodes=2)
    docker, process = (AirflowSettings(root="r", runner=name) for name in ("docker", "process"))
    assert nodes_environment(one, docker) == nodes_environment(two, process) == {}
    assert nodes_environment(two, docker) == {"DMLS_NODE_TRAINERS": ""}
    with monkeypatch.context() as patch:
        patch.setattr(DockerRunner, "starts_nodes", "")
        with pytest.raises(SpecError, match=r"the runner 'docker' starts no nodes.*DMLS_DASK_SCHEDULER"):
            nodes_environment(two, docker)

    certificate = {"DASK_DISTRIBUTED__COMM__TLS__CA_FILE": "/etc/dask/ca.pem"}
    for name, text in {"DMLS_DASK_SCHEDULER": "tls://dask:8786", **certificate}.items():
        monkeypatch.setenv(name, text)
    expected = {"DMLS_DASK_SCHEDULER": "tls://dask:8786", **certificate}
    assert nodes_environment(two, docker) == nodes_environment(two, process) == expected
    assert nodes_environment(one, docker) == {}
    assert choose_engine(two.spec, gpus=1) == "cpu"


def test_nodes_are_trainers_that_know_their_leader_and_fewer_secrets(job, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("DMLS_SIGNING_KEY", "signing-secret")
    run, store = job(1, "lightgbm-classifier", nodes=3), open_store(str(tmp_path))
    plan, settings = {"worker": 0, "engine": "cpu"}, AirflowSettings(root=store.url, runner="docker")
    labels = trainer_labels(run, store.url, plan, context(try_number=2))
    leader = make_trainer(run, store, settings, plan, labels)
    nodes = node_trainers(leader)

    assert [node.key for node in nodes] == [f"{leader.key}-node{number}" for number in (1, 2, 3)]
    folder = leader.arguments[leader.arguments.index("--out") + 1]
    for node in nodes:
        assert node.arguments == ["node", folder]
        assert (
            node.environment["DMLS_NODE_TRAINERS"] == leader.environment["DMLS_NODE_TRAINERS"] == leader.key
        )
        assert node.labels[LEADER_LABEL] == leader.key
        assert earlier_tries(node.key) == earlier_tries(leader.key)
        assert (node.memory, node.nodes) == (leader.memory, 0)
        assert "signing-secret" not in str(node)
    assert leader.environment["DMLS_SIGNING_KEY"] == "signing-secret"
    assert node_trainers(make_trainer(job(1, "xgboost-classifier"), store, settings, plan, labels)) == []
    process = AirflowSettings(root=store.url, runner="process")
    assert node_trainers(make_trainer(run, store, process, plan, labels)) == []


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
def test_a_connection_becomes_a_url_that_sqlalchemy_reads(connection, url):
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
def test_a_url_that_no_container_reaches_is_refused(address: str, network: str, reason: str):
    environment = {STUDY_VARIABLE: f"postgresql+psycopg://{address}"}

    if not reason:
        check_reachable(environment, network)
        check_reachable({}, network)
        return
    with pytest.raises(RunnerError, match=reason) as caught:
        check_reachable(environment, network)
    assert "secret" not in str(caught.value)
