"""A platform whose Airflow has two Celery workers: hosts with networks and logs of their own."""

from __future__ import annotations

import ipaddress
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dmls_core.devstack import airflow
from dmls_core.devstack.context import Context, base_environment, load_identity
from dmls_core.devstack.platform import Platform
from dmls_core.devstack.postgres import database_url
from tests.services.docker_engine import EngineMissingError, apt_install
from tests.services.platform_client import PlatformClient
from tests.services.seaweed import free_ports

FORWARD = Path(__file__).with_name("forward.py")


class Host:
    """A network namespace: services of this machine's loopback address are on its own one, too."""

    def __init__(self, number: int, ports: list[int]) -> None:
        # No name or network of a run that was killed, which nothing removes.
        self.name = f"dmls-{os.getpid()}-{number}"
        block = (2 * os.getpid() + number) % 2**20
        network = ipaddress.IPv4Address("10.64.0.0") + 4 * block
        self._near, self.address = str(network + 1), str(network + 2)
        self._link = f"dmls{os.getpid()}-{number}"
        self._processes: list[subprocess.Popen[bytes]] = []
        run("ip", "netns", "add", self.name)
        run("ip", "link", "add", self._link, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        run("ip", "addr", "add", f"{self._near}/30", "dev", self._link)
        run("ip", "link", "set", self._link, "up")
        for command in (f"addr add {self.address}/30 dev eth0", "link set eth0 up", "link set lo up"):
            run(*self.inside, "ip", *command.split())
        near = [f"{self._near}:{port}=127.0.0.1:{port}" for port in ports]
        far = [f"127.0.0.1:{port}={self._near}:{port}" for port in ports]
        self.start([sys.executable, str(FORWARD), *near])
        self.start([*self.inside, sys.executable, str(FORWARD), *far])

    @property
    def inside(self) -> list[str]:
        """The command that runs the rest of a command in the namespace."""
        return ["ip", "netns", "exec", self.name]

    def start(
        self, command: list[str], log: Path | None = None, environment: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a process in a session of its own."""
        with (log or Path(os.devnull)).open("ab") as stream:
            process = subprocess.Popen(
                command,
                stdout=stream,
                stderr=stream,
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def start_worker(self, environment: dict[str, str], folder: Path) -> None:
        """Start a Celery worker; its host name is its address, at which Airflow fetches its logs."""
        folder.mkdir()
        own = {"AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(folder / "logs")}
        worker = [sys.executable, "-P", "-m", "airflow", "celery", "worker", "--concurrency", "2"]
        worker += ["--pid", str(folder / "worker.pid"), "--without-gossip", "--without-mingle"]
        shell = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', self.address, *worker]
        self.worker = self.start([*self.inside, *shell], folder / "worker.log", environment | own)

    def kill_worker(self) -> None:
        """Kill the worker with its tasks, as the loss of a machine does; trainers have their own sessions."""
        os.killpg(self.worker.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the processes and remove the namespace."""
        for process in self._processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        subprocess.run(["ip", "link", "del", self._link], check=False, capture_output=True)
        run("ip", "netns", "del", self.name)


def run(*command: str) -> None:
    """Run a command; raise with what it wrote if it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"


class CeleryPlatform:
    """A running platform and its two workers, by address."""

    def __init__(self, home: Path, hosts: list[Host]) -> None:
        self.client = PlatformClient(home / "platform.json")
        self.hosts = {host.address: host for host in hosts}


def _redis() -> str:
    """Return the path of Redis: Debian's package of the server would start one, that of its tools not."""
    names = ("redis-server", "redis-check-rdb")
    if not any(map(shutil.which, names)):
        try:
            apt_install(["redis-tools"])
        except EngineMissingError as error:
            pytest.skip(f"Redis: {error}")
    return next(filter(None, map(shutil.which, names)))


@pytest.fixture(scope="module")
def celery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CeleryPlatform]:
    """Start Redis, the platform and the workers; skip where no network namespace can be made."""
    if os.geteuid() or subprocess.run(["ip", "netns", "list"], capture_output=True).returncode:
        pytest.skip("network namespaces need root and iproute2")
    folder = tmp_path_factory.mktemp("celery")
    password, (port,) = secrets.token_hex(8), free_ports(1)
    redis = _redis()
    configuration = folder / "redis.conf"
    configuration.touch(0o600)
    configuration.write_text(f'bind 127.0.0.1\nport {port}\nrequirepass {password}\nsave ""\ndir {folder}\n')
    broker = subprocess.Popen(["redis-server", configuration], executable=redis, stdout=subprocess.DEVNULL)
    own = airflow.airflow_environment

    def with_celery(context: Context, runner: airflow.Runner) -> dict[str, str]:
        return own(context, runner) | {
            "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
            "AIRFLOW__CELERY__BROKER_URL": f"redis://:{password}@127.0.0.1:{port}/0",
            "AIRFLOW__CELERY__RESULT_BACKEND": f"db+{database_url(context, 'airflow', 'psycopg2')}",
        }

    home, hosts = folder / ".dmls", list[Host]()
    platform = Platform(home)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", "unix:///nonexistent.sock")
        patch.setattr(airflow, "airflow_environment", with_celery)
        try:
            platform.up()
            context = Context(home, load_identity(home / "identity.json"))
            service = json.loads((home / "services" / "airflow-scheduler.json").read_text())
            environment = base_environment(context) | service["environment"]
            for number in (1, 2):
                hosts.append(Host(number, [*context.identity.ports.values(), port]))
                hosts[-1].start_worker(environment, folder / f"worker{number}")
            yield CeleryPlatform(home, hosts)
        finally:
            for host in hosts:
                host.close()
            platform.down()
            broker.terminate()
            broker.wait()
