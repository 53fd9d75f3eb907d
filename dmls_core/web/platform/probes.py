"""Ask every service at once, each with a deadline."""

from __future__ import annotations

import itertools
import json
import time
import urllib.request
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as LateError
from dataclasses import dataclass
from typing import Any, Literal

from dmls_core.airflow.settings import AirflowSettings
from dmls_core.store import layout
from dmls_core.web.backend import open_store

SECONDS = 2.0
"""Longest wait for one service."""

State = Literal["ok", "slow", "broken", "missing"]

_threads = ThreadPoolExecutor(16, thread_name_prefix="dmls-probe")
_running: dict[str, Future[str]] = {}


@dataclass(frozen=True, slots=True)
class Health:
    """How a service is.

    Attributes:
        name: of the service.
        state: ``slow`` where it has not answered within the deadline; ``missing`` where no address is set.
        message: its version, or what is wrong.
        milliseconds: until it answered; ``None`` where it did not.
        address: where it was asked.
    """

    name: str
    state: State
    message: str
    milliseconds: float | None = None
    address: str = ""


def probe_all(probes: Mapping[str, tuple[str, Callable[[], str]]], seconds: float = SECONDS) -> list[Health]:
    """Ask all at once; return after ``seconds`` at the latest.

    A probe that is late goes on in its thread; it is not asked again before it has ended, so that a service
    that hangs takes one thread and no more.

    Args:
        probes: name -> (address, function that returns the service's version or raises); no address: not set.
        seconds: longest wait for one.
    """
    began = time.monotonic()
    for name, (address, work) in probes.items():
        if address and (name not in _running or _running[name].done()):
            _running[name] = _threads.submit(_timed, work)
    return [_outcome(name, address, began + seconds) for name, (address, _) in probes.items()]


def _timed(work: Callable[[], str]) -> str:
    began = time.perf_counter()
    message = work()
    return json.dumps([(time.perf_counter() - began) * 1000, message])


def _outcome(name: str, address: str, end: float) -> Health:
    if not address:
        return Health(name, "missing", "no address is set")
    try:
        milliseconds, message = json.loads(_running[name].result(max(0.0, end - time.monotonic())))
    except LateError:
        return Health(name, "slow", f"no answer within {SECONDS:.0f} s", None, address)
    except Exception as error:  # noqa: BLE001 - whatever a client library raises is how the service is
        return Health(name, "broken", str(error)[:300] or type(error).__name__, None, address)
    return Health(name, "ok", message, round(milliseconds, 1), address)


def service_probes(settings: AirflowSettings) -> dict[str, tuple[str, Callable[[], str]]]:
    """Return the probes of the services that the bundle's entry names."""
    probes: dict[str, tuple[str, Callable[[], str]]] = {
        "Store": (settings.root, _ask_store),
        "MLflow": (settings.mlflow_uri, lambda: _get(f"{settings.mlflow_uri.rstrip('/')}/version")),
    }
    addresses = [part.strip() for part in settings.triton_http.split(",") if part.strip()]
    for number, address in enumerate(addresses or [""], start=1):
        name = "Triton" if len(addresses) < 2 else f"Triton {number}"
        probes[name] = (address, lambda address=address: _ask_triton(address))  # type: ignore[misc]
    return probes


def _ask_store() -> str:
    found = len(list(itertools.islice(open_store().list(layout.JOBS), 1)))
    return "answers; jobs are registered" if found else "answers; no job is registered yet"


def _ask_triton(address: str) -> str:
    server: dict[str, Any] = json.loads(_get(f"http://{address}/v2"))
    _get(f"http://{address}/v2/health/ready")
    return f"{server.get('name')} {server.get('version')}"


def _get(url: str) -> str:
    request = urllib.request.Request(url)  # noqa: S310 - the platform team sets the address
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
        text: str = answer.read(1 << 16).decode(errors="replace")
    return text.strip()
