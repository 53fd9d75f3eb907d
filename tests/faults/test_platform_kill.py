"""Services of the embedded platform killed with -9, one, some or all: it comes back, nothing lingers."""

from __future__ import annotations

import os
import signal

import pytest

from dmls_core.devstack.doctor import examine
from tests.services.platform_home import PlatformHome, eventually


def healthy(home: PlatformHome) -> bool:
    # The doctor, which takes seconds of CPU time, is asked only once every service runs.
    return home.platform.status().up and not any(c.state == "broken" for c in examine(home.platform))


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
    ports = home.identity["ports"]
    password = home.state["settings"]["airflow_password"]
    client(home).put_object(Bucket="dmls", Key="kill/all", Body=b"kept")
    # The supervisor first, or it would start the others again.
    os.kill(home.supervisor_pid(), signal.SIGKILL)
    for marked in home.processes():
        marked.process.kill()
    eventually(lambda: not home.processes())

    assert home.platform.up().up
    assert home.identity["ports"] == ports
    assert home.state["settings"]["airflow_password"] == password
    assert client(home).get_object(Bucket="dmls", Key="kill/all")["Body"].read() == b"kept"
    assert healthy(home)


def test_down_after_everything_but_one_service_was_killed(home: PlatformHome):
    home.platform.up()
    os.kill(home.supervisor_pid(), signal.SIGKILL)
    for marked in home.processes():
        if marked.service != "postgres":
            marked.process.kill()
    home.platform.down()
    home.assert_nothing_is_left()
