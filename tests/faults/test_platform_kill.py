"""Services of the embedded platform killed with -9, one, some or all: it comes back, nothing lingers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from dmls_core.devstack.processes import ID_VARIABLE, SERVICE_VARIABLE
from tests.services.platform_home import PlatformHome, eventually

SERVICES = (
    "s3",
    "postgres",
    "mlflow",
    "triton",
    "airflow-api-server",
    "airflow-scheduler",
    "airflow-triggerer",
)


def healthy(home: PlatformHome) -> bool:
    # The doctor, which takes seconds of CPU time, is asked only once every service runs.
    return home.platform.status().up and not any(c.state == "broken" for c in home.platform.doctor())


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


@pytest.mark.parametrize("service", SERVICES)
def test_a_killed_service_starts_again_by_itself(home: PlatformHome, service: str):
    client(home).put_object(Bucket="dmls", Key=f"kill/{service}", Body=b"kept")
    old = home.processes(service)
    killed = home.main_pid(service)
    os.kill(killed, signal.SIGKILL)

    eventually(lambda: home.main_pid(service) not in (0, killed))
    eventually(lambda: not [m for m in old if m.process.is_running()])
    eventually(lambda: healthy(home))
    assert client(home).get_object(Bucket="dmls", Key=f"kill/{service}")["Body"].read() == b"kept"


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


def test_down_ends_a_stray_that_carries_the_mark_and_no_other(home: PlatformHome):
    def sleeper(mark: str, **variables: str) -> subprocess.Popen[bytes]:
        # Deaf to SIGTERM, in a session of its own.
        code = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(600)"
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            env=os.environ | {ID_VARIABLE: mark} | variables,
            start_new_session=True,
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        process.stdout.readline()
        return process

    ours, other = sleeper(home.identity["id"]), sleeper("of-another-platform")
    task = sleeper(home.identity["id"], **{SERVICE_VARIABLE: "airflow-scheduler"})
    try:
        assert home.platform.down() == [ours.pid]  # a task in flight is ended, too, but is no stray
        assert ours.wait(5) == task.wait(5) == -signal.SIGKILL
        assert other.poll() is None
    finally:
        for process in (ours, other, task):
            process.kill()
            process.wait()
    assert_nothing_is_left(home)
    assert home.platform.down() == []


def test_down_after_everything_but_one_service_was_killed(home: PlatformHome):
    home.platform.up()
    os.kill(home.supervisor_pid(), signal.SIGKILL)
    for marked in home.processes():
        if marked.service != "postgres":
            marked.process.kill()
    home.platform.down()
    assert_nothing_is_left(home)


def assert_nothing_is_left(home: PlatformHome) -> None:
    assert home.processes() == []
    assert not (home.folder / "platform.json").exists()
    assert not Path(home.identity["runtime"]).exists()
    assert not list(Path("/dev/shm").glob(f"dmls-{home.identity['id']}-*"))
    for name, port in home.identity["ports"].items():
        listening = [c for c in psutil.net_connections("tcp") if c.laddr and c.laddr.port == port]
        assert not [c for c in listening if c.status == psutil.CONN_LISTEN], name
        assert not Path(f"/tmp/seaweedfs-{name.removesuffix('_grpc')}-grpc-{port}.sock").exists()
