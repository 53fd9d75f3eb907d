"""Probe Airflow and the services in the bundle entry, and say what to do about one that fails."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import httpx

from dmls_core.airflow import database
from dmls_core.airflow.operations.late_versions import CLOCK_TOLERANCE
from dmls_core.airflow.settings import AirflowSettings
from dmls_core.errors import PlatformError, StoreError
from dmls_core.serving.formats.treelite.fil_backend import DESCRIPTIONS, FIL
from dmls_core.serving.triton.addresses import parse_address, split_addresses
from dmls_core.serving.triton.backends import BackendKind, backend_of
from dmls_core.store import Store, layout
from dmls_core.store.probe import UNREACHABLE_HINT, UNWRITABLE_HINT, write_read_delete
from dmls_core.tracking.connection import authorities, server_version

PROBE_SECONDS = 2.0

HTTP_SECONDS = 30.0

ASKED_MODELS = 5
"""Models that a server is asked for, in order to know its FIL backend."""

CLOCK_HINT = "wait until then, or submit these jobs under other names"

WATCHER_HINT = "the DAG processor restores it within a minute; if it does not, its log says why"

State = Literal["ok", "slow", "broken", "missing"]


@dataclass(frozen=True, slots=True)
class Probe:
    """A service's address (empty if none is set), what returns its version or raises, and a remedy."""

    address: str
    look: Callable[[], str]
    hint: str = ""


class ProbeError(PlatformError):
    """A service responds, but is broken, with the remedy."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Health:
    """Health of a service: ``slow`` if it did not respond in time, ``missing`` if it has no address.

    ``hint`` is the remedy if it is slow or broken.
    """

    name: str
    state: State
    message: str
    milliseconds: float | None = None
    address: str = ""
    hint: str = ""


_threads = ThreadPoolExecutor(16, thread_name_prefix="dmls-probe")
_running: dict[str, Future[tuple[float, str]]] = {}
_lock = threading.Lock()


def probe_all(probes: Mapping[str, Probe], seconds: float = PROBE_SECONDS) -> list[Health]:
    """Return the health of every service, after ``seconds`` at the latest.

    A late probe continues in its thread and is not started again until it ends: a service that hangs occupies
    one thread and no more.
    """
    end = time.monotonic() + seconds
    with _lock:
        for name, probe in probes.items():
            if probe.address and (name not in _running or _running[name].done()):
                _running[name] = _threads.submit(_timed, probe.look)
        running = dict(_running)
    return [_health(name, probe, running.get(name), end) for name, probe in probes.items()]


def _timed(look: Callable[[], str]) -> tuple[float, str]:
    started = time.perf_counter()
    message = look()
    return (time.perf_counter() - started) * 1000, message


def _health(name: str, probe: Probe, running: Future[tuple[float, str]] | None, end: float) -> Health:
    if not probe.address or running is None:
        return Health(name, "missing", "no address is set")
    try:
        milliseconds, message = running.result(max(0.0, end - time.monotonic()))
    except FutureTimeoutError:
        late = f"no response within {PROBE_SECONDS:.0f} s"
        return Health(name, "slow", late, None, probe.address, probe.hint)
    except Exception as error:  # noqa: BLE001 - any error of a client library means that the service is broken
        message = str(error)[:300] or type(error).__name__
        hint = error.hint if isinstance(error, ProbeError) else probe.hint
        return Health(name, "broken", message, None, probe.address, hint)
    return Health(name, "ok", message, round(milliseconds, 1), probe.address)


def service_probes(settings: AirflowSettings, store: Store) -> dict[str, Probe]:
    """Return the probes of Airflow and of the services in the bundle entry; ``store`` is at its root."""
    probes = {
        "Airflow": Probe(
            "its database", _probe_airflow, "start what is unhealthy again; its log says why it stopped"
        ),
        "Store": Probe(settings.root, lambda: _probe_store(store), UNREACHABLE_HINT),
        "MLflow": Probe(
            settings.mlflow_uri,
            lambda: server_version(settings.mlflow_uri),
            "start MLflow again; until then, runs cannot register or deploy models",
        ),
    }
    try:
        addresses = split_addresses(settings.triton_http)
    except PlatformError:
        addresses = [settings.triton_http]  # its probe says what is wrong
    for number, address in enumerate(addresses or [""], start=1):
        name = "Triton" if len(addresses) < 2 else f"Triton {number}"
        probes[name] = Probe(
            address,
            lambda address=address: _probe_triton(address, store),  # type: ignore[misc]
            "start Triton again: it loads the served models by itself",
        )
    return probes


def _probe_airflow() -> str:
    states = database.airflow_health()
    unhealthy = [f"{name} is {state}" for name, state in states.items() if state != "healthy"]
    if unhealthy:
        raise PlatformError(", ".join(unhealthy))
    with database.create_session() as session:
        ahead = database.runs_ahead(session, datetime.now(UTC) + CLOCK_TOLERANCE)
        unwatched = database.unwatched_dags(session)
    if ahead:
        raise ProbeError(
            f"the system clock was set back: runs of {', '.join(sorted(ahead))} are dated up to "
            f"{max(ahead.values()):%Y-%m-%d %H:%M} UTC, and wait until then",
            CLOCK_HINT,
        )
    if unwatched:
        raise ProbeError(f"no event starts {', '.join(sorted(unwatched))}: the watcher is gone", WATCHER_HINT)
    return f"{', '.join(sorted(states))} are healthy"


def _probe_store(store: Store) -> str:
    jobs = list(itertools.islice(store.list(layout.JOBS), 1))
    try:
        write_read_delete(store)
    except StoreError as error:
        raise ProbeError(f"it is readable but not writable: {error}", UNWRITABLE_HINT) from error
    return "responds; jobs are registered" if jobs else "responds; no job is registered yet"


def _probe_triton(address: str, store: Store) -> str:
    (address,) = split_addresses(address)
    url = parse_address(address, "http").url
    server: dict[str, Any] = json.loads(_get(f"{url}/v2"))
    _get(f"{url}/v2/health/ready")
    backend = _find_fil_backend(url, store)
    return f"{server.get('name')} {server.get('version')}{f', {DESCRIPTIONS[backend]}' if backend else ''}"


def _find_fil_backend(server: str, store: Store) -> BackendKind | None:
    """Return the FIL backend of the server at a URL, by a model: one without does not say."""
    for job in itertools.islice(store.list(layout.JOBS), ASKED_MODELS):
        team, name = job.key.removeprefix(layout.JOBS).removesuffix(".json").split("/")
        with suppress(httpx.HTTPStatusError):
            url = f"{server}/v2/models/{layout.model_name(team, name)}/config"
            config = json.loads(_get(url))
            if config.get("backend") == FIL:
                return backend_of(config)
    return None


def _get(url: str) -> str:
    response = httpx.get(url, timeout=HTTP_SECONDS, follow_redirects=True, verify=authorities())
    return response.raise_for_status().text.strip()
