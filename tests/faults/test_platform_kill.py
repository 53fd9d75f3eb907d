"""Services of the embedded platform killed with -9, one, some or all: it comes back, nothing lingers."""

from __future__ import annotations

import importlib.metadata
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial

import pytest

from dmls_core.devstack.context import Context, load_identity
from dmls_core.devstack.doctor import examine
from dmls_core.devstack.postgres import note_schema_version, schema_version
from dmls_core.devstack.processes import ID_VARIABLE, SERVICE_VARIABLE
from tests.services.platform_home import PlatformHome, eventually


def healthy(home: PlatformHome) -> bool:
    # The doctor, which takes seconds of CPU time, is asked only once every service runs.
    return home.platform.status().up and not any(c.state == "broken" for c in examine(home.platform))


def context(home: PlatformHome) -> Context:
    return Context(home.folder, load_identity(home.folder / "identity.json"))


def client(home: PlatformHome):
    import boto3

    env = home.state["environment"]
    return boto3.client(
        "s3",
        endpoint_url=env["AWS_ENDPOINT_URL"],
        aws_access_key_id=env["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=env["AWS_SECRET_ACCESS_KEY"],
        region_name=env["AWS_DEFAULT_REGION"],
    )


@pytest.fixture(autouse=True)
def settings_of_the_platform(home: PlatformHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLS_HOME", str(home.folder))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)


# What all others need is killed alone, then those that do not need each other.
@pytest.mark.parametrize(
    "services",
    [
        ("s3",),
        *(
            pytest.param(
                services,
                marks=pytest.mark.nightly("`make test` kills the object store; all have one supervisor"),
            )
            for services in (
                ("airflow-scheduler", "airflow-triggerer"),
                ("postgres",),
                ("mlflow", "triton", "airflow-api-server"),
            )
        ),
    ],
    ids="+".join,
)
def test_killed_services_start_again_by_themselves(home: PlatformHome, services: tuple[str, ...]):
    key = f"kill/{services[0]}"
    client(home).put_object(Bucket="dmls", Key=key, Body=b"kept")
    old = [marked for service in services for marked in home.processes(service)]
    killed = {service: home.main_pid(service) for service in services}
    for pid in killed.values():
        os.kill(pid, signal.SIGKILL)

    for service, pid in killed.items():
        eventually(lambda service=service, pid=pid: home.main_pid(service) not in (0, pid))
    eventually(lambda: not [m for m in old if m.process.is_running()])
    eventually(lambda: healthy(home))
    assert client(home).get_object(Bucket="dmls", Key=key)["Body"].read() == b"kept"


@pytest.mark.nightly("`test_up_after_everything_was_killed` kills it, too")
def test_up_after_the_supervisor_was_killed(home: PlatformHome):
    before = {m.process.pid for m in home.processes()}
    os.kill(home.supervisor_pid(), signal.SIGKILL)

    state = home.platform.up()
    assert state.up
    assert before.isdisjoint(m.process.pid for m in home.processes())
    assert healthy(home)


def test_up_after_everything_was_killed(home: PlatformHome):
    """Others took some of its ports meanwhile, and the databases have schemas of other releases."""
    identity, password = home.identity, home.state["settings"]["airflow_password"]
    client(home).put_object(Bucket="dmls", Key="kill/all", Body=b"x" * 5_000_000)
    for database in ("airflow", "mlflow"):
        note_schema_version(context(home), database, "0")
    # The supervisor first, or it would start the others again.
    os.kill(home.supervisor_pid(), signal.SIGKILL)
    for marked in home.processes():
        marked.process.kill()
    eventually(lambda: not home.processes())

    taken = ("s3", "master", "volume", "filer_grpc", "postgres", "airflow")
    with ExitStack() as servers:

        def take(name: str) -> bool:
            server = servers.enter_context(socket.socket())
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):  # A killed process holds its port for a moment.
                server.bind(("127.0.0.1", identity["ports"][name]))
                server.listen()
                return True
            return False

        for name in taken:
            eventually(partial(take, name))
        assert home.platform.up().up
    ports = home.identity["ports"]
    assert {name for name in ports if ports[name] != identity["ports"][name]} == set(taken)
    assert home.identity["credentials"] == identity["credentials"]
    assert home.state["settings"]["airflow_password"] == password
    assert len(client(home).get_object(Bucket="dmls", Key="kill/all")["Body"].read()) == 5_000_000
    assert schema_version(context(home), "mlflow") == importlib.metadata.version("mlflow")
    assert schema_version(context(home), "airflow") == importlib.metadata.version("apache-airflow-core")
    assert healthy(home)


@contextmanager
def strays(platform_id: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Yield three processes: one with the platform's mark, one with another's, a task of the platform."""
    # Deaf to SIGTERM, in a session of its own.
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    marks = {ID_VARIABLE: platform_id}, {ID_VARIABLE: "of-another-platform"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env=os.environ | mark,
            start_new_session=True,
            stdout=subprocess.PIPE,
        )
        for mark in (*marks, marks[0] | {SERVICE_VARIABLE: "airflow-scheduler"})
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_down_ends_strays_and_leaves_nothing(home: PlatformHome):
    with strays(home.identity["id"]) as (ours, other, task):
        assert home.platform.down() == [ours.pid]  # a task in flight is ended, too, but is no stray
        assert ours.wait(5) == task.wait(5) == -signal.SIGKILL
        assert other.poll() is None
    home.assert_nothing_is_left()
    assert home.platform.status().settings is None
    assert {service.state for service in home.platform.status().services} == {"DOWN"}
    assert home.platform.down() == []


@pytest.mark.nightly("`test_down_ends_strays_and_leaves_nothing` finds processes by their mark, too")
def test_down_after_everything_but_one_service_was_killed(home: PlatformHome):
    home.platform.up()
    os.kill(home.supervisor_pid(), signal.SIGKILL)
    for marked in home.processes():
        if marked.service != "postgres":
            marked.process.kill()
    home.platform.down()
    home.assert_nothing_is_left()
