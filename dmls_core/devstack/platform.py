"""The embedded platform: start, stop and inspect the real services on one machine."""

from __future__ import annotations

import contextlib
import random
import shutil
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dmls_core.devstack.airflow import ADMIN
from dmls_core.devstack.context import (
    IDENTITY_SCHEMA,
    LOOPBACK,
    Context,
    base_environment,
    ensure_runtime_folder,
    load_identity,
    spare_loopback_from_proxies,
)
from dmls_core.devstack.docker_engine import choose_runner, remove_containers
from dmls_core.devstack.mlflow import mlflow_login
from dmls_core.devstack.private_files import exclusive, make_private_folder, read_json, write_private_json
from dmls_core.devstack.processes import clear_stale, end_marked, find_marked
from dmls_core.devstack.signing import sign_earlier_models, signing_environment
from dmls_core.devstack.startup import BASE, PORTS, STANDARD_PORTS, USERS, Progress, Startup, run_steps
from dmls_core.devstack.supervisor import RUNNING_STATES, Supervisor
from dmls_core.errors import PlatformError
from dmls_core.settings import STATE_FILE, Settings, state_folder

RANGE = range(20000, 32000)
"""Below the ephemeral ports of common systems."""

_ATTEMPTS = 200

_RELEASE_SECONDS = 2.0
"""A killed server holds its port until its threads have ended."""

PORTS_LOCK = "\0dmls-standard-ports"
"""An abstract name of a socket: gone with the process that has it."""


def is_free(port: int) -> bool:
    """Return whether a server can bind ``port`` on the loopback address now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        # A port with connections in TIME_WAIT is free; one with a listener is not.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


@contextlib.contextmanager
def reserve_standard_ports() -> Iterator[Mapping[str, int]]:
    """Give the standard ports to one process of this machine at a time; the others get none.

    Between the choice of a free port and the start of its service, another process may choose the same one.
    """
    with socket.socket(socket.AF_UNIX) as lock:
        try:
            lock.bind(PORTS_LOCK)
        except OSError:
            yield {}
        else:
            yield STANDARD_PORTS


def choose_ports(
    names: Iterable[str],
    previous: Mapping[str, int],
    requested: Mapping[str, int],
    busy_is_ours: Iterable[str] = (),
    standard: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, int]:
    """Return a port per name: requested, previous, standard or new; the last three if free.

    The services of ``busy_is_ours`` run and use their previous ports. Raises ``PlatformError`` if a requested
    port is taken, or none is free.
    """
    names, ours = list(names), set(busy_is_ours)
    deadline = time.monotonic() + _RELEASE_SECONDS
    chosen: dict[str, int] = {}
    for name, port in requested.items():
        if not (name in ours and previous.get(name) == port) and not _becomes_free(port, deadline):
            raise PlatformError(f"port {port}, asked for {name}, is taken by another process")
        chosen[name] = port
    for name in names:
        if name in chosen:
            continue
        port, usual = previous.get(name, 0), standard.get(name, 0)
        if port and port not in chosen.values() and (name in ours or _becomes_free(port, deadline)):
            chosen[name] = port
        elif usual and usual not in {*chosen.values(), *previous.values()} and is_free(usual):
            chosen[name] = usual
        else:
            chosen[name] = _new_port({*chosen.values(), *previous.values(), *STANDARD_PORTS.values()})
    return {name: chosen[name] for name in names}


def _becomes_free(port: int, deadline: float) -> bool:
    while not is_free(port):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _new_port(excluded: set[int]) -> int:
    for port in random.SystemRandom().sample(RANGE, _ATTEMPTS):
        if port not in excluded and is_free(port):
            return port
    raise PlatformError(f"no free port between {RANGE.start} and {RANGE.stop}")


_IDENTITY_FILE = "identity.json"
_LOCK_SECONDS = 600.0
_SHUTDOWN_SECONDS = 15.0


class Platform:
    """One embedded platform, with its whole state in one folder.

    Args:
        folder: the state folder; ``None`` for the one that ``state_folder`` finds.
        ports: ports to use instead of free ones, by name (``airflow``, ``mlflow``, ``s3``, …).
    """

    def __init__(self, folder: Path | None = None, ports: Mapping[str, int] | None = None) -> None:
        self.folder = (folder or state_folder()).absolute()
        self._given_ports = dict(ports or {})

    def up(self, progress: Progress = lambda *_: None) -> State:
        """Start the services that do not run, and return when every service responds.

        Args:
            progress: called for each step, in the thread that runs it.

        Raises:
            PlatformError: a service does not start; the others keep running.
        """
        spare_loopback_from_proxies()
        make_private_folder(self.folder)
        make_private_folder(self.folder / "logs")
        with exclusive(self.folder / "lock", _LOCK_SECONDS), reserve_standard_ports() as standard:
            context = self._context()
            supervisor = self._supervisor(context)
            states = supervisor.states() if supervisor.answers() else {}
            if set(states) != {*BASE, *USERS}:
                # Nothing runs, or leftovers of a killed supervisor, or another release's services.
                self._stop(context)
                states = {}
            self._choose_ports(context, states, standard)
            if not states:
                ensure_runtime_folder(context.identity)
            if (read_json(self.folder / _IDENTITY_FILE) or {}).get("schema") != IDENTITY_SCHEMA:
                sign_earlier_models(context)
            # Before the first process starts: `dmls down` needs its id to end it.
            context.identity.save(self.folder / _IDENTITY_FILE)
            supervisor = self._supervisor(context)
            if not states:
                supervisor.configure({**BASE, **USERS})
                supervisor.start()
            write_state(context, self._state(context, supervisor).services, again=bool(states))
            startup = Startup(context, supervisor, choose_runner(), base_environment(context))
            run_steps(startup.steps(), progress)
            return self._state(context, supervisor)

    def down(self) -> list[int]:
        """Stop every process, keep the data, and return the pids of strays: marked, but of no service.

        Raises:
            PlatformError: a process could not be ended.
        """
        if not (self.folder / _IDENTITY_FILE).exists():
            return []
        with exclusive(self.folder / "lock", _LOCK_SECONDS):
            return self._stop(self._context())

    def status(self) -> State:
        """Return the state of each service without waiting."""
        if not (self.folder / _IDENTITY_FILE).exists():
            return State(self.folder, (), None)
        context = self._context()
        return self._state(context, self._supervisor(context))

    def ports(self) -> dict[str, int]:
        """Return the port of each service; empty if the platform has never been started."""
        return self._context().identity.ports if (self.folder / _IDENTITY_FILE).exists() else {}

    def _stop(self, context: Context) -> list[int]:
        """Stop the supervised services, then end marked processes, then remove stale files."""
        supervisor = self._supervisor(context)
        if supervisor.answers():
            # Processes that do not stop are ended by the id in their environment.
            with contextlib.suppress(PlatformError):
                for group in (USERS, BASE):
                    with ThreadPoolExecutor(len(group)) as pool:
                        list(pool.map(supervisor.stop_program, group))
            supervisor.shut_down(_SHUTDOWN_SECONDS)
        # A service's own process may outlive it for a moment, such as a task the scheduler: it is no stray.
        strays = [m.process.pid for m in end_marked(context.identity.id) if not m.service]
        remove_containers(context.identity.id)
        if left := find_marked(context.identity.id):
            raise PlatformError(f"processes that could not be ended: {[m.process.pid for m in left]}")
        for file in (self.folder / "services").glob("*.json"):
            clear_stale(read_json(file) or {})
        shutil.rmtree(context.runtime, ignore_errors=True)
        (self.folder / STATE_FILE).unlink(missing_ok=True)
        return strays

    def _context(self) -> Context:
        return Context(self.folder, load_identity(self.folder / _IDENTITY_FILE))

    def _supervisor(self, context: Context) -> Supervisor:
        name = f"dmls-{context.identity.id}"
        return Supervisor(name, self.folder, context.runtime, base_environment(context))

    def _choose_ports(
        self, context: Context, states: Mapping[str, Mapping[str, Any]], standard: Mapping[str, int]
    ) -> None:
        identity = context.identity
        names = [name for ports in PORTS.values() for name in ports]
        unknown = set(self._given_ports) - set(names)
        if unknown:
            raise PlatformError(
                f"no service has a port called {', '.join(sorted(unknown))}: there are {names}"
            )
        running = [name for name, state in states.items() if state["statename"] in RUNNING_STATES]
        ours = [port for service in running for port in PORTS.get(service, ())]
        identity.ports = choose_ports(names, identity.ports, self._given_ports, ours, standard)

    def _state(self, context: Context, supervisor: Supervisor) -> State:
        states = supervisor.states() if supervisor.answers() else {}
        urls = _service_urls(context)
        services = tuple(
            ServiceState(
                name=name,
                state=states.get(name, {}).get("statename", "DOWN"),
                url=urls.get(name, ""),
                log=str(supervisor.log_of(name)),
                pid=states.get(name, {}).get("pid", 0),
            )
            for name in (*BASE, *USERS)
        )
        return State(self.folder, services, platform_settings(context) if states else None)


@dataclass(frozen=True, slots=True)
class ServiceState:
    """State of a service; ``state`` is supervisord's (``RUNNING`` is healthy), or ``DOWN``."""

    name: str
    state: str
    url: str
    log: str
    pid: int


@dataclass(frozen=True, slots=True)
class State:
    """State of the platform; ``settings`` is ``None`` when it is down."""

    folder: Path
    services: tuple[ServiceState, ...]
    settings: Settings | None

    @property
    def up(self) -> bool:
        """Whether every service runs."""
        return bool(self.services) and all(service.state == "RUNNING" for service in self.services)


def _service_urls(context: Context) -> dict[str, str]:
    """Return the URL of each service that has one."""
    return {
        "s3": context.url("s3"),
        "postgres": f"postgresql://{context.address('postgres')}",
        "mlflow": context.url("mlflow"),
        "airflow-api-server": context.url("airflow"),
        "triton": context.url("triton_http"),
    }


def platform_settings(context: Context) -> Settings:
    """Return the addresses of this platform."""
    return Settings(
        root=context.root,
        mlflow_uri=context.url("mlflow"),
        triton_http=context.address("triton_http"),
        triton_grpc=context.address("triton_grpc"),
        triton_repository=str(context.model_repository),
        triton_key=context.secret("triton_key"),
        airflow_url=context.url("airflow"),
        airflow_username=ADMIN,
        airflow_password=context.secret("airflow_password"),
    )


def write_state(context: Context, services: tuple[ServiceState, ...], *, again: bool = False) -> None:
    """Write ``platform.json`` (mode 600) for ``load_settings``; ``again`` keeps the time of the start."""
    file = context.state / STATE_FILE
    previous = (read_json(file) or {}) if again else {}
    write_private_json(
        file,
        {
            "schema": 1,
            "platform_id": context.identity.id,
            "started": previous.get("started") or datetime.now(UTC).isoformat(timespec="seconds"),
            "settings": asdict(platform_settings(context)),
            "environment": context.s3_environment()
            | mlflow_login(context)
            | signing_environment(context)
            | {"NO_PROXY": LOOPBACK, "no_proxy": LOOPBACK},
            "services": {s.name: {"url": s.url, "log": s.log} for s in services},
        },
    )
