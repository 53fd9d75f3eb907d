"""A private Docker engine for tests, where this machine has none that answers.

It needs root on a Debian or Ubuntu machine and installs the package ``docker.io`` when ``dockerd`` is
missing. The engine has a socket, a data folder and a control group of its own, no bridge and no firewall
rules: containers use the host's network or none. It has a stand-in for NVIDIA's runtime hook, so that it
starts containers that request GPUs; they see none. By hand::

    python -m tests.services.docker_engine start /tmp/engine     # prints DOCKER_HOST
    python -m tests.services.docker_engine stop /tmp/engine      # stops it and removes the folder
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.services.base_image import make_python_image, missing_packages

START_SECONDS = 60
STOP_SECONDS = 30
IMAGE_SECONDS = 900
PYTHON_IMAGE = "python:3.12-slim"
"""What the Dockerfiles build on by default. A private engine has this machine's Python under that name."""

STORAGE_DRIVERS = ("overlay2", "vfs")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class EngineMissingError(Exception):
    """No Docker engine answers, and none can be started here; the message says why."""


@dataclass(frozen=True)
class DockerEngine:
    """A Docker engine that answers.

    Attributes:
        host: value of ``DOCKER_HOST``.
    """

    host: str

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which the Docker client, and its Python library, find this engine."""
        ours = {k: v for k, v in os.environ.items() if not k.startswith("DOCKER_")}
        return ours | {"DOCKER_HOST": self.host, "DOCKER_BUILDKIT": "0"}

    def docker(
        self, *arguments: str, timeout: float = 600, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run the Docker client."""
        done = subprocess.run(
            ["docker", *arguments], env=self.environment, capture_output=True, text=True, timeout=timeout
        )
        if check and done.returncode:
            raise AssertionError(
                f"docker {' '.join(arguments)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
            )
        return done

    def answers(self) -> bool:
        """Say whether the engine answers."""
        if not shutil.which("docker"):
            return False
        done = self.docker("version", "--format", "{{.Server.Version}}", timeout=20, check=False)
        return done.returncode == 0


class PrivateEngine:
    """Starts and ends one engine over a folder.

    Args:
        folder: holds its socket, images and log; a short path, since unix sockets have at most 107 bytes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.engine = DockerEngine(f"unix://{folder}/docker.sock")
        self._cgroup = f"dmls-engine-{folder.name}"

    def start(self) -> DockerEngine:
        """Start the engine, unless it runs, and make its Python image.

        Raises:
            EngineMissingError: it cannot be started here.
        """
        if len(str(self.folder)) > 70:
            raise EngineMissingError(f"{self.folder} is too long for a unix socket")
        install_packages()
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self.engine.answers() and not any(map(self._start_with, STORAGE_DRIVERS)):
            raise EngineMissingError(f"dockerd did not start:\n{self._log()}")
        if self.engine.docker("image", "inspect", PYTHON_IMAGE, check=False).returncode:
            make_python_image(self.engine.docker, PYTHON_IMAGE, self.folder)
        return self.engine

    def stop(self) -> None:
        """End the engine and all that it started, and remove its folder."""
        daemon = self._daemon()
        if daemon:
            running = self.engine.docker("ps", "--quiet", check=False).stdout.split()
            if running:
                self.engine.docker("kill", *running, check=False)
            self.engine.docker("container", "prune", "--force", check=False)
            daemon.terminate()
            try:
                daemon.wait(STOP_SECONDS)
            except psutil.TimeoutExpired:
                daemon.kill()
        self._end_leftovers()
        self._unmount()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start_with(self, driver: str) -> bool:
        for stale in ("docker.pid", "docker.sock"):
            (self.folder / stale).unlink(missing_ok=True)
        command = ["dockerd", "--host", self.engine.host, "--storage-driver", driver]
        command += ["--data-root", f"{self.folder}/data", "--exec-root", f"{self.folder}/exec"]
        command += ["--pidfile", f"{self.folder}/docker.pid", "--cgroup-parent", f"/{self._cgroup}"]
        command += ["--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false"]
        command += ["--ip-masq=false", "--log-level", "warn"]
        hook = self.folder / "programs" / "nvidia-container-runtime-hook"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\n")
        hook.chmod(0o755)
        with (self.folder / "dockerd.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                env={"PATH": f"{hook.parent}:{SYSTEM_PATH}"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        end = time.monotonic() + START_SECONDS
        while not self.engine.answers():
            if process.poll() is not None or time.monotonic() > end:
                process.kill()
                process.wait()
                return False
            time.sleep(0.1)
        return True

    def _daemon(self) -> psutil.Process | None:
        try:
            process = psutil.Process(int((self.folder / "docker.pid").read_text()))
        except (OSError, ValueError, psutil.NoSuchProcess):
            return None
        return process if process.name() == "dockerd" else None

    def _end_leftovers(self) -> None:
        """End what a crashed engine left: its containerd and shims, and its containers' processes."""
        sockets = f"{self.folder}/exec/"
        for process in psutil.process_iter():
            try:
                if any(sockets in argument for argument in process.cmdline()):
                    process.kill()
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        for group in self._cgroups():
            for file in group.rglob("cgroup.procs"):
                for pid in file.read_text().split():
                    os.kill(int(pid), signal.SIGKILL)
        time.sleep(0.2)
        for group in self._cgroups():
            for child in sorted(group.rglob("*/"), reverse=True):
                child.rmdir()
            group.rmdir()

    def _cgroups(self) -> list[Path]:
        root = Path("/sys/fs/cgroup")
        places = [root / self._cgroup, *(root.glob(f"*/{self._cgroup}"))]
        return [place for place in places if place.is_dir()]

    def _unmount(self) -> None:
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for mount in sorted((m for m in mounts if m.startswith(f"{self.folder}/")), reverse=True):
            subprocess.run(["umount", "--lazy", mount], check=False)

    def _log(self) -> str:
        return (self.folder / "dockerd.log").read_text(errors="replace")[-3000:]


def install_packages() -> None:
    """Install Debian's engine, and what the Python image is made of, where they are missing.

    Raises:
        EngineMissingError: this is not root's, or not a Debian machine, or apt failed.
    """
    if os.geteuid() != 0:
        raise EngineMissingError("no Docker engine answers, and starting one needs root")
    if not shutil.which("apt-get"):
        raise EngineMissingError("no Docker engine answers, and there is no apt-get to install one")
    missing = missing_packages() + (
        [] if shutil.which("dockerd") and shutil.which("docker") else ["docker.io"]
    )
    if not missing:
        return
    apt_install(missing)


def apt_install(packages: list[str]) -> None:
    """Install Debian packages.

    Raises:
        EngineMissingError: this is not root's, or there is no apt-get, or it failed.
    """
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise EngineMissingError(f"installing {' '.join(packages)} needs root and apt-get")
    apt = ["apt-get", "-o", "DPkg::Lock::Timeout=300"]
    install = [*apt, "install", "-y", "-qq", "--no-install-recommends", *packages]
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (install, [*apt, "update", "-qq"], install):
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if command is install and done.returncode == 0:
            return
    raise EngineMissingError(f"apt-get could not install {' '.join(packages)}:\n{done.stderr[-2000:]}")


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[DockerEngine]:
    """The machine's own engine where one answers; else a private one for this session; else a skip."""
    own = DockerEngine(os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock"))
    if own.answers():
        yield own
        return
    private = PrivateEngine(Path(tempfile.mkdtemp(prefix="engine-", dir="/tmp")))
    try:
        try:
            engine = private.start()
        except EngineMissingError as error:
            pytest.skip(f"Docker: {error}")
        yield engine
    finally:
        private.stop()


@pytest.fixture(scope="session")
def trainer_image(docker_engine: DockerEngine) -> str:
    """The trainer's image, built the way ``dmls up`` builds it: once, until its sources change."""
    program = "from dmls_core.cli.platform_start import prepare_image; prepare_image()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=docker_engine.environment,
        capture_output=True,
        text=True,
        timeout=IMAGE_SECONDS,
    )
    name = "dmls-trainer:cpu"
    found = docker_engine.docker("image", "inspect", name, check=False)
    assert found.returncode == 0, f"{name} was not built:\n{done.stdout}\n{done.stderr}"
    return name


def main(action: str, folder: str) -> None:
    """Start or stop an engine by hand."""
    private = PrivateEngine(Path(folder).absolute())
    if action == "stop":
        private.stop()
    else:
        print(f"export DOCKER_HOST={private.start().host}")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("start", "stop"):
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
