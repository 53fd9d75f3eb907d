"""Services, and the supervisor (supervisord) that runs them, with its XML-RPC over a unix socket."""

from __future__ import annotations

import configparser
import contextlib
import io
import os
import shlex
import subprocess
import sys
import time
import xmlrpc.client
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.parsers.expat import ExpatError

import psutil

from dmls_core.devstack.airflow_client import http_client
from dmls_core.devstack.private_files import write_private
from dmls_core.errors import PlatformError

_PROBE_SECONDS = 3.0

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 0.4
"""Seconds between two probes: they grow from the first to the second."""

_LAST_LINES = 15


@dataclass(frozen=True, slots=True)
class Service:
    """One supervised process.

    Attributes:
        name: its name in the supervisor, in logs and in ``DMLS_SERVICE``.
        command: program and arguments; no secrets, since every user can list them.
        environment: variables in addition to those of all services; may hold secrets.
        ready: whether the process that started at the given time (seconds since the epoch) responds.
        seconds: longest time until it responds, from the last line in its log.
        stale: files (glob patterns) of a killed predecessor to remove first.
        late_arguments: ``module:function`` and its arguments, called at each start; it returns further
            arguments of ``command``.
    """

    name: str
    command: list[str]
    folder: Path
    ready: Callable[[float], bool]
    environment: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 300.0
    url: str = ""
    stale: tuple[str, ...] = ()
    late_arguments: tuple[str, ...] = ()


def http_answers(url: str, status: int = 200) -> bool:
    """Return whether a GET of ``url`` responds with ``status``."""
    return http_text(url, status) is not None


def http_text(url: str, status: int = 200, *, seconds: float = _PROBE_SECONDS) -> str | None:
    """Return the body of a GET of ``url``; ``None`` unless it responds with ``status`` within ``seconds``."""
    import httpx

    try:
        with http_client(url, seconds, follow_redirects=True) as client:
            response = client.get(url)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):  # the latter two: it is no address at all
        return None
    return response.text if response.status_code == status else None


def wait_until(
    ready: Callable[[], bool], seconds: float, activity: Callable[[], object] = lambda: None
) -> None:
    """Wait until ``ready()``, which may raise to stop waiting.

    Raise ``PlatformError`` after ``seconds`` in which ``activity()`` has not changed.
    """
    begun, last = time.monotonic(), activity()
    end = begun + seconds
    pause = FIRST_PAUSE
    while not ready():
        if (latest := activity()) != last:
            last, end = latest, time.monotonic() + seconds
        if time.monotonic() > end:
            raise PlatformError(f"no answer after {time.monotonic() - begun:.0f} s")
        time.sleep(pause)
        pause = min(pause * 1.5, LONGEST_PAUSE)


def run_logged(
    command: Sequence[str],
    environment: Mapping[str, str],
    log: Path,
    seconds: float,
    folder: Path | None = None,
    name: str = "",
) -> None:
    """Run a command with its output in ``log``; raise ``PlatformError`` with the log's end if it fails."""
    with log.open("ab") as stream:
        try:
            subprocess.run(
                command,
                check=True,
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                timeout=seconds,
            )
        except (OSError, subprocess.SubprocessError) as error:
            failed = (name or " ".join(command[:3])) + " failed"
            if not isinstance(error, subprocess.CalledProcessError):  # the log does not show these
                failed += f": {error}"
            raise PlatformError(f"{failed}\n{last_lines(log)}\nsee {log}") from error


def last_lines(log: Path, count: int = _LAST_LINES) -> str:
    """Return the last lines of a log, for an error's message."""
    try:
        with log.open("rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - 16384))
            lines = stream.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(line[:300] for line in lines[-count:])


_RPC_SECONDS = 20.0
_START_SECONDS = 15.0

NOT_RUNNING, ALREADY_STARTED, BAD_NAME = 70, 60, 10
"""Faults of supervisord's XML-RPC that mean that nothing needs to be done."""

_CONFIG = "supervisord.conf"

START_RETRIES = 5

RUNNING_STATES = ("STARTING", "RUNNING", "BACKOFF")


@dataclass(frozen=True, slots=True)
class Stop:
    """The signal that asks a program to end, and the seconds until it is killed."""

    signal: str
    seconds: int


class Supervisor:
    """One supervisord for one platform; ``name`` is its identifier, different for each platform.

    ``folder`` holds its configuration and logs, ``runtime`` its socket and pid file.
    """

    def __init__(self, name: str, folder: Path, runtime: Path, environment: dict[str, str]) -> None:
        self.name = name
        self.folder = folder
        self.logs = folder / "logs"
        self.socket = runtime / "supervisor.sock"
        self.pid_file = runtime / "supervisord.pid"
        self.environment = environment

    def answers(self) -> bool:
        """Return whether this platform's supervisord responds."""
        try:
            return bool(self._call("getIdentification") == self.name)
        except PlatformError:
            return False

    def configure(self, programs: Mapping[str, Stop]) -> None:
        """Write the configuration of ``programs``.

        Its paths are relative to supervisord's working directory, since supervisord expands per cent signs in
        absolute ones.
        """
        config = configparser.RawConfigParser()
        config["unix_http_server"] = {"file": str(self.socket), "chmod": "0700"}
        config["rpcinterface:supervisor"] = {
            "supervisor.rpcinterface_factory": "supervisor.rpcinterface:make_main_rpcinterface"
        }
        config["supervisorctl"] = {"serverurl": f"unix://{self.socket}"}
        config["supervisord"] = {
            "identifier": self.name,
            "logfile": "logs/supervisord.log",
            "logfile_maxbytes": "5MB",
            "logfile_backups": "2",
            "pidfile": str(self.pid_file),
            "childlogdir": "logs",
            "umask": "077",
            "minfds": "256",
            "minprocs": "64",
            **({"user": "root"} if os.geteuid() == 0 else {}),
        }
        launch = f"{shlex.quote(sys.executable)} -P -m dmls_core.devstack.processes"
        for name, stop in programs.items():
            config[f"program:{name}"] = {
                "command": f"{launch} services/{name}.json",
                "autostart": "false",
                "autorestart": "true",
                "startsecs": "1",
                "startretries": str(START_RETRIES),
                "stopsignal": stop.signal,
                "stopwaitsecs": str(stop.seconds),
                "stopasgroup": "true",
                "killasgroup": "true",
                "redirect_stderr": "true",
                "stdout_logfile": f"logs/{name}.log",
                "stdout_logfile_maxbytes": "10MB",
                "stdout_logfile_backups": "3",
            }
        text = io.StringIO()
        config.write(text)
        write_private(self.folder / _CONFIG, text.getvalue())

    def start(self) -> None:
        """Start supervisord as a daemon; raise ``PlatformError`` if it does not respond."""
        for stale in (self.socket, self.pid_file):
            stale.unlink(missing_ok=True)
        command = [sys.executable, "-P", "-m", "supervisor.supervisord", "-c", str(self.folder / _CONFIG)]
        log = self.log_of("supervisord")
        try:
            subprocess.run(
                command,
                env=self.environment,
                cwd=self.folder,
                start_new_session=True,
                check=True,
                timeout=_START_SECONDS,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
            )
            wait_until(self.answers, _START_SECONDS)
        except subprocess.CalledProcessError as error:
            raise PlatformError(f"supervisord did not start: {error.stderr[-2000:]}") from error
        except (subprocess.TimeoutExpired, PlatformError) as error:
            raise PlatformError(
                f"supervisord did not start: {error}\n{last_lines(log)}\nsee {log}"
            ) from error

    def states(self) -> dict[str, dict[str, Any]]:
        """Return supervisord's entry of each program: ``statename``, ``pid``, ``start`` and more."""
        return {entry["name"]: entry for entry in self._call("getAllProcessInfo")}

    def info(self, name: str) -> dict[str, Any]:
        """Return supervisord's entry of one program."""
        info: dict[str, Any] = self._call("getProcessInfo", name)
        return info

    def start_program(self, name: str) -> None:
        """Start a program, unless it runs; return at once."""
        self._call("startProcess", name, False, allowed=(ALREADY_STARTED,))

    def stop_program(self, name: str) -> None:
        """Stop a program and wait until it has ended."""
        self._call("stopProcess", name, True, allowed=(NOT_RUNNING, BAD_NAME), seconds=60.0)

    def shut_down(self, seconds: float) -> None:
        """End supervisord and its programs, waiting at most ``seconds``."""
        with contextlib.suppress(PlatformError, psutil.Error):
            process = psutil.Process(self._call("getPID"))
            self._call("shutdown")
            process.wait(seconds)

    def log_of(self, name: str) -> Path:
        """Return the log file of a program."""
        return self.logs / f"{name}.log"

    def _call(
        self,
        method: str,
        *arguments: str | bool,
        allowed: tuple[int, ...] = (),
        seconds: float = _RPC_SECONDS,
    ) -> Any:  # noqa: ANN401 - XML-RPC
        import httpx

        # "/RPC2" is the path of XML-RPC; the host is the socket.
        transport = httpx.HTTPTransport(uds=str(self.socket))
        request = xmlrpc.client.dumps(arguments, f"supervisor.{method}", allow_none=True)
        try:
            with httpx.Client(transport=transport, timeout=seconds) as client:
                response = client.post("http://supervisord/RPC2", content=request.encode())
            (answer,), _ = xmlrpc.client.loads(response.raise_for_status().content)
        except xmlrpc.client.Fault as fault:
            if fault.faultCode in allowed:
                return None
            raise PlatformError(f"supervisord: {method}{arguments}: {fault.faultString}") from fault
        except (httpx.HTTPError, ExpatError, xmlrpc.client.Error) as error:
            raise PlatformError(f"supervisord does not answer on {self.socket}: {error}") from error
        return answer
