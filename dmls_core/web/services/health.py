"""Check the health of the platform's services, and run `dmls doctor`."""

from __future__ import annotations

import itertools
import json
import os
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Any, Literal

import httpx

from dmls_core.airflow import metadata
from dmls_core.airflow.settings import AirflowSettings
from dmls_core.errors import PlatformError
from dmls_core.settings import ENVIRONMENT
from dmls_core.store import layout
from dmls_core.web.services.store_access import open_store

PROBE_SECONDS = 2.0

HTTP_SECONDS = 30.0

DOCTOR_SECONDS = 60.0

CACHE_SECONDS = 60.0
"""How long the result of `dmls doctor` is reused."""

State = Literal["ok", "slow", "broken", "missing"]
Probe = tuple[str, Callable[[], str]]
"""Address of a service (empty if none is set), and a function that returns its version or raises."""

_threads = ThreadPoolExecutor(16, thread_name_prefix="dmls-probe")
_running: dict[str, Future[tuple[float, str]]] = {}
_lock = threading.Lock()
_cached: tuple[float, list[dict[str, Any]]] = (-CACHE_SECONDS, [])


@dataclass(frozen=True, slots=True)
class Health:
    """Health of a service.

    Attributes:
        name: name of the service.
        state: ``slow`` if it did not respond in time; ``missing`` if no address is set.
        message: its version, or what is wrong.
        milliseconds: response time; ``None`` if it did not respond.
        address: where it was probed.
    """

    name: str
    state: State
    message: str
    milliseconds: float | None = None
    address: str = ""


def probe_all(probes: Mapping[str, Probe], seconds: float = PROBE_SECONDS) -> list[Health]:
    """Return the health of every service, after ``seconds`` at the latest.

    A late probe continues in its thread and is not started again until it ends: a service that hangs occupies
    one thread and no more.
    """
    started = time.monotonic()
    for name, (address, probe) in probes.items():
        if address and (name not in _running or _running[name].done()):
            _running[name] = _threads.submit(_timed, probe)
    return [_health(name, address, started + seconds) for name, (address, _) in probes.items()]


def _timed(probe: Callable[[], str]) -> tuple[float, str]:
    started = time.perf_counter()
    message = probe()
    return (time.perf_counter() - started) * 1000, message


def _health(name: str, address: str, end: float) -> Health:
    if not address:
        return Health(name, "missing", "no address is set")
    try:
        milliseconds, message = _running[name].result(max(0.0, end - time.monotonic()))
    except FutureTimeoutError:
        return Health(name, "slow", f"no response within {PROBE_SECONDS:.0f} s", None, address)
    except Exception as error:  # noqa: BLE001 - any error of a client library means that the service is broken
        return Health(name, "broken", str(error)[:300] or type(error).__name__, None, address)
    return Health(name, "ok", message, round(milliseconds, 1), address)


def service_probes(settings: AirflowSettings) -> dict[str, Probe]:
    """Return the probes of Airflow and of the services in the bundle entry."""
    mlflow = f"{settings.mlflow_uri.rstrip('/')}/version"
    probes: dict[str, Probe] = {
        "Airflow": ("this API server", _probe_airflow),
        "Store": (settings.root, _probe_store),
        "MLflow": (settings.mlflow_uri, lambda: _get(mlflow)),
    }
    addresses = [part.strip() for part in settings.triton_http.split(",") if part.strip()]
    for number, address in enumerate(addresses or [""], start=1):
        name = "Triton" if len(addresses) < 2 else f"Triton {number}"
        probes[name] = (address, lambda address=address: _probe_triton(address))  # type: ignore[misc]
    return probes


def _probe_airflow() -> str:
    states = metadata.airflow_health()
    unhealthy = [f"{name} is {state}" for name, state in states.items() if state != "healthy"]
    if unhealthy:
        raise PlatformError(", ".join(unhealthy))
    return f"{', '.join(sorted(states))} are healthy"


def _probe_store() -> str:
    found = len(list(itertools.islice(open_store().list(layout.JOBS), 1)))
    return "responds; jobs are registered" if found else "responds; no job is registered yet"


def _probe_triton(address: str) -> str:
    server: dict[str, Any] = json.loads(_get(f"http://{address}/v2"))
    _get(f"http://{address}/v2/health/ready")
    return f"{server.get('name')} {server.get('version')}"


def _get(url: str) -> str:
    # The system's certificate authorities, as for the tasks.
    context = ssl.create_default_context()
    response = httpx.get(url, timeout=HTTP_SECONDS, follow_redirects=True, verify=context)
    return response.raise_for_status().text.strip()


def run_doctor(settings: AirflowSettings, *, again: bool = False) -> list[dict[str, Any]]:
    """Return the checks of `dmls doctor`, cached unless ``again``; concurrent callers share one run.

    Addresses in the environment win over ``settings``. Raises ``PlatformError`` if the command fails.
    """
    global _cached
    with _lock:
        at, checks = _cached
        if again or time.monotonic() - at > CACHE_SECONDS:
            checks = _run_doctor(settings)
            _cached = (time.monotonic(), checks)
        return checks


def _run_doctor(settings: AirflowSettings) -> list[dict[str, Any]]:
    addresses = {
        ENVIRONMENT[name]: getattr(settings, name)
        for name in ("root", "mlflow_uri", "triton_http", "triton_grpc", "triton_repository")
    }
    environment = {**{name: value for name, value in addresses.items() if value}, **os.environ}
    command = [sys.executable, "-P", "-m", "dmls_core.cli", "doctor", "--json"]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=DOCTOR_SECONDS, check=False
        )
        checks: list[dict[str, Any]] = json.loads(done.stdout)["checks"]
    except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
        raise PlatformError(f"`dmls doctor` failed: {error}") from error
    return checks
