"""Requests that Triton's servers answered, by hour: for the capacity plan.

Triton counts requests and their time since its start, for each model. The differences of two looks are added
to one small object for each day.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING

from dmls_core.errors import ServingError
from dmls_core.store import Store, layout

if TYPE_CHECKING:
    from dmls_core.serving.triton.client import ModelUse, TritonClient

RETENTION = timedelta(days=28)
"""Age at which a day's counts are deleted."""


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests that were answered, and the seconds that servers computed for them."""

    count: int = 0
    busy_seconds: float = 0.0

    def __add__(self, other: Requests) -> Requests:
        return Requests(self.count + other.count, self.busy_seconds + other.busy_seconds)


class RequestCounter:
    """Counts the requests between two looks at the servers."""

    def __init__(self) -> None:
        self._before: dict[str, Mapping[str, ModelUse]] = {}
        self._probes_before: Mapping[tuple[str, str], int] = {}

    def record(self, store: Store, http: str, grpc: str, probes: Mapping[tuple[str, str], int]) -> None:
        """Add what the servers at these addresses have answered since the last call to the store.

        ``probes``: see ``look``.

        Raises:
            PlatformError: an address is wrong, or cannot be resolved.
            StoreError: the store does not answer; these requests are lost.
        """
        from dmls_core.serving import triton_servers

        with triton_servers(http, grpc) as servers:
            requests = self.look(servers, probes)
        if requests.count:
            add_requests(store, requests, datetime.now(UTC))

    def look(
        self, servers: Iterable[TritonClient], probes: Mapping[tuple[str, str], int] = MappingProxyType({})
    ) -> Requests:
        """Return what was answered since the last look; nothing of a server that is seen the first time.

        ``probes``: requests that DMLS has sent so far, by server and model, which are not counted.
        A server that does not answer is left out: its requests are counted at the next look, unless it was
        started anew, which ends its counters.
        """
        requests = Requests()
        for server in servers:
            address = server.addresses["grpc"]
            try:
                now = server.uses()
            except ServingError:
                continue
            if address in self._before:
                sent = {
                    name: probes.get((address, name), 0) - self._probes_before.get((address, name), 0)
                    for name in now
                }
                requests += _requests(_without(_growth(self._before[address], now), sent))
            self._before[address] = now
        self._probes_before = dict(probes)
        return requests


def _growth(before: Mapping[str, ModelUse], now: Mapping[str, ModelUse]) -> dict[str, ModelUse]:
    """Return what was added; a counter that fell began anew."""
    growth = {}
    for name, (count, seconds) in now.items():
        earlier = before.get(name, (0, 0.0))
        growth[name] = (count - earlier[0], seconds - earlier[1]) if count >= earlier[0] else (count, seconds)
    return growth


def _without(uses: Mapping[str, ModelUse], sent: Mapping[str, int]) -> dict[str, ModelUse]:
    """Return the requests of others, and their part of the time."""
    rest = {}
    for name, (count, seconds) in uses.items():
        others = max(0, count - sent[name])
        rest[name] = (others, seconds * others / count if count else 0.0)
    return rest


def _requests(uses: Mapping[str, ModelUse]) -> Requests:
    """Return the requests of users: a table endpoint asks its model, for whose answer it waits meanwhile."""
    from dmls_core.serving.triton.model_config import SUFFIX  # imports NumPy
    from dmls_core.serving.triton.shared_process import SHARED

    requests = Requests()
    for name, (count, seconds) in uses.items():
        if name == SHARED:
            continue  # the endpoints that it serves count its time as theirs
        if name.endswith(SUFFIX):
            requests += Requests(count, seconds)
        elif count:
            direct = max(0, count - uses.get(name + SUFFIX, (0, 0.0))[0])
            requests += Requests(direct, seconds * direct / count)
    return requests


def add_requests(store: Store, requests: Requests, now: datetime) -> None:
    """Add requests to those of this hour; delete the days that are older than ``RETENTION``."""
    key = layout.requests_file(f"{now:%Y-%m-%d}")
    hours = _read(store, key)
    if not hours:
        oldest = layout.requests_file(f"{now - RETENTION:%Y-%m-%d}")
        for info in store.list(layout.REQUESTS):
            if info.key < oldest:
                store.delete(info.key)
    hour = f"{now:%H}"
    total = hours.get(hour, Requests()) + requests
    hours[hour] = total
    content = {hour: [one.count, round(one.busy_seconds, 3)] for hour, one in hours.items()}
    store.put(key, json.dumps(content).encode())


def read_requests(store: Store, since: datetime) -> dict[datetime, Requests]:
    """Return the requests of each hour that was recorded, by its begin in UTC."""
    hours = {}
    for info in store.list(layout.REQUESTS):
        day = info.key.removeprefix(layout.REQUESTS).removesuffix(".json")
        for hour, one in _read(store, info.key).items():
            begin = datetime.fromisoformat(f"{day}T{hour}:00:00").replace(tzinfo=UTC)
            if begin >= since:
                hours[begin] = one
    return hours


def _read(store: Store, key: str) -> dict[str, Requests]:
    """Return a day's requests by hour; none if there is no such object, or a damaged one."""
    if store.head(key) is None:
        return {}
    try:
        content = json.loads(store.get(key))
        return {hour: Requests(int(count), float(busy)) for hour, (count, busy) in content.items()}
    except (ValueError, TypeError, AttributeError):
        return {}
