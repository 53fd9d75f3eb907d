"""Reload the models of Triton whose process ended, and keep a record of it that people see."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from dmls_core.errors import DmlsError, ServingError
from dmls_core.monitoring.reconcile import ReconcileResult
from dmls_core.store import (
    ProcessFailure,
    ProcessFailures,
    Store,
    all_process_failures,
    read_process_failures,
    write_process_failures,
)

if TYPE_CHECKING:
    from dmls_core.serving import Repository
    from dmls_core.serving.triton.client import TritonClient

log = logging.getLogger(__name__)

PAUSES = (0.0, 0.0, 30.0, 60.0, 120.0)
"""Seconds to wait before each further attempt to reload a process within ``WINDOW``; no more are made."""

WINDOW = 3600.0
"""Seconds for which an attempt counts."""

GIVEN_UP = "it is left alone for an hour. See Triton's log, then roll back, or deploy another version"


class ProcessWatch:
    """Looks at the processes of all models on all servers, and reloads those that ended."""

    def __init__(self, store: Store, repository: Repository) -> None:
        """Read the records in ``store``; ``repository`` is Triton's.

        Raises:
            StoreError: the store does not answer.
        """
        from dmls_core.serving.deployment.processes import ProcessProbe

        self._store = store
        self._probe = ProcessProbe(repository)
        self._open = {
            (failure.process, failure.server)
            for _, record in all_process_failures(store)
            for failure in record.failures
            if not failure.reloaded
        }

    @property
    def requests(self) -> Mapping[tuple[str, str], int]:
        """Requests that this watch made, by server (gRPC) and model."""
        return self._probe.requests

    def look(self, servers: Sequence[TritonClient]) -> ReconcileResult:
        """Reload what ended; return a line for each process that was reloaded, or could not be.

        A server that does not answer is left out. A model whose deployment is in progress is looked at next
        time.

        Raises:
            DmlsError: the store does not answer.
        """
        result = ReconcileResult()
        with ThreadPoolExecutor(len(servers)) as threads:
            looks = list(threads.map(self._look_at, servers))
        for client, look in zip(servers, looks, strict=True):
            if look is None:
                continue
            loaded, ended = look
            for process in sorted(ended):
                self._heal(client, process, result)
            for process, server in [one for one in self._open if one[1] == client.addresses["http"]]:
                if process in loaded - ended:
                    self._close(process, server)
                elif not self._is_served(process):
                    self._forget(process, server)
        servers_now = {client.addresses["http"] for client in servers}
        for process, server in [one for one in self._open if one[1] not in servers_now]:
            self._forget(process, server)
        return result

    def _look_at(self, client: TritonClient) -> tuple[set[str], set[str]] | None:
        """Return what is loaded and what ended; ``None`` if the server does not answer."""
        try:
            return self._probe.ended(client)
        except ServingError as error:
            log.info("the processes of %s are not looked at: %s", client.addresses["http"], error)
            return None

    def _is_served(self, process: str) -> bool:
        from dmls_core.serving.triton.model_config import CHALLENGER
        from dmls_core.serving.triton.shared_process import SHARED

        if process == SHARED:
            return True
        if process.endswith(CHALLENGER):
            return self._probe.repository.options(_model(process)).canary is not None
        return self._probe.repository.serving(_model(process)) is not None

    def _heal(self, client: TritonClient, process: str, result: ReconcileResult) -> None:
        """Reload a process if that may be done now; add a line about it to ``result``."""
        from dmls_core.serving.repository.locks import BusyError

        address = client.addresses["http"]
        try:
            with self._probe.reloading(client, process) as reload:
                if reload and self._begin(process, address):
                    log.warning("the process of %s on %s ended; reloading it", process, address)
                    reload()
                    self._close(process, address)
                    result.repaired.append(f"{process}: reloaded on {address}, since its process ended")
        except BusyError as error:
            log.info("%s on %s is looked at later: %s", process, address, error)
        except DmlsError as error:
            log.warning("%s cannot be reloaded on %s: %s", process, address, error)
            result.failures.append(f"{process} on {address}: {error}")
            self._fail(process, address, str(error), is_fatal=not client.live())

    def _begin(self, process: str, server: str) -> bool:
        """Record that a process ended, and an attempt to reload it; return whether it may be made now."""
        record, now = read_process_failures(self._store, _model(process)), datetime.now(UTC)
        failure = _open_failure(record, process, server) or ProcessFailure(process, server, _iso(now))
        recent = [
            one
            for one in record.failures
            if one.process == process and one.tried and _age(one.tried, now) < WINDOW
        ]
        tried = [one for one in recent if one.server == server]
        attempts = sum(one.attempts for one in tried)
        may_reload = False
        if attempts >= len(PAUSES) or any(one.attempts >= len(PAUSES) for one in recent):
            failure = replace(failure, error=failure.error or GIVEN_UP)
        elif all(_age(one.tried, now) >= PAUSES[attempts] for one in tried):
            may_reload = True
            failure = replace(failure, tried=_iso(now), attempts=failure.attempts + 1, error="")
        self._write(record, failure)
        self._open.add((process, server))
        return may_reload

    def _fail(self, process: str, server: str, error: str, *, is_fatal: bool) -> None:
        """Record why a process was not reloaded; a model that ended the server is not loaded again soon."""
        record = read_process_failures(self._store, _model(process))
        if failure := _open_failure(record, process, server):
            attempts = len(PAUSES) if is_fatal else failure.attempts
            self._write(record, replace(failure, error=error, attempts=attempts))

    def _close(self, process: str, server: str) -> None:
        """Record that a process answers again."""
        record = read_process_failures(self._store, _model(process))
        if failure := _open_failure(record, process, server):
            self._write(record, replace(failure, reloaded=_iso(datetime.now(UTC)), error=""), reloads=1)
        self._open.discard((process, server))

    def _forget(self, process: str, server: str) -> None:
        """Remove the failure of a process that is not served there any more."""
        record = read_process_failures(self._store, _model(process))
        if failure := _open_failure(record, process, server):
            others = tuple(one for one in record.failures if one is not failure)
            write_process_failures(self._store, _model(process), replace(record, failures=others))
        self._open.discard((process, server))

    def _write(self, record: ProcessFailures, failure: ProcessFailure, *, reloads: int = 0) -> None:
        before = _open_failure(record, failure.process, failure.server)
        others = tuple(one for one in record.failures if one is not before)
        changed = ProcessFailures((*others, failure), record.reloads + reloads)
        if changed != record:
            write_process_failures(self._store, _model(failure.process), changed)


def _open_failure(record: ProcessFailures, process: str, server: str) -> ProcessFailure | None:
    for failure in record.failures:
        if (failure.process, failure.server) == (process, server) and not failure.reloaded:
            return failure
    return None


def _model(process: str) -> str:
    """Return the name of the record: that of the model for its table endpoint and its challenger."""
    from dmls_core.serving.triton.model_config import CHALLENGER, SUFFIX

    return process.removesuffix(SUFFIX).removesuffix(CHALLENGER)


def _age(iso: str, now: datetime) -> float:
    return (now - datetime.fromisoformat(iso)).total_seconds()


def _iso(time: datetime) -> str:
    return time.isoformat(timespec="seconds")
