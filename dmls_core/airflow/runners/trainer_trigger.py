"""The trigger that watches a trainer in the triggerer while its task holds no worker.

Airflow's database stores its class path: moving it breaks tasks that wait during an upgrade.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, ClassVar

from airflow.triggers.base import BaseTrigger, TriggerEvent

from dmls_core.airflow.runners.runner import LOST, Runner, TrainerExit, in_thread, load_runner
from dmls_core.airflow.runners.trainer_events import wait_for_exit
from dmls_core.airflow.runs.status import StatusReporter
from dmls_core.airflow.settings import airflow_settings, open_root
from dmls_core.errors import DmlsError, ObjectMissingError
from dmls_core.store import Store

PROGRESS_SECONDS = 2.0
"""Shortest interval between two reads of a trainer's log and progress."""

_READS_PER_SECOND = 20.0
"""Reads of all trainers together, so that hundreds of them leave the triggerer idle."""

RETRY_SECONDS = 5.0
"""Wait after a failure of the store or the runner's service."""


class TrainerTrigger(BaseTrigger):
    """Watch a trainer: forward its log and progress, and resume its task when it has ended.

    It keeps only names, so another triggerer can go on: ``key`` of the trainer, ``folder`` of the run,
    number of the ``worker``, and for the leader ``status``, arguments of a ``StatusReporter``.
    """

    watched: ClassVar[int] = 0
    """Trainers that this process watches."""

    endings: ClassVar[set[asyncio.Future[None]]] = set()
    """What this process does for tasks that were killed; asyncio itself keeps no reference to it."""

    def __init__(
        self, key: str, folder: str, worker: int = 0, status: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.key = key
        self.folder = folder
        self.worker = worker
        self.status = status
        self._position = self._message = ""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments."""
        arguments = {"key": self.key, "folder": self.folder, "worker": self.worker, "status": self.status}
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield ``code`` and ``reason`` once the trainer has ended and is recorded and removed."""
        runner, store = await self._open()
        end = asyncio.ensure_future(self._wait(runner, store))
        TrainerTrigger.watched += 1
        try:
            done: set[asyncio.Future[TrainerExit]] = set()
            while not done:
                interval = max(PROGRESS_SECONDS, TrainerTrigger.watched / _READS_PER_SECOND)
                done, _ = await asyncio.wait({end}, timeout=interval)
                # Once more after the end: only then is the log complete.
                await in_thread(self._forward, runner, store)
        finally:
            TrainerTrigger.watched -= 1
            end.cancel()
        ended = end.result()
        while True:
            try:
                exit_ = await in_thread(self._finish, runner, store, ended)
                break
            except Exception:
                # The trainer has ended and its result is in the store: the task must not fail now.
                self.log.exception("cannot record the trainer's end; trying again")
                await asyncio.sleep(RETRY_SECONDS)
        if exit_.code and self.status is not None:
            reason = exit_.reason or f"exited with code {exit_.code}"
            with suppress(DmlsError):
                await in_thread(self._reporter(store).trainer_ended, reason)
        yield TriggerEvent({"code": exit_.code, "reason": exit_.reason})  # type: ignore[no-untyped-call]

    async def _wait(self, runner: Runner, store: Store) -> TrainerExit:
        """Return how the trainer ended, or how it is to be recorded before it is removed."""
        return await wait_for_exit(runner, self.key)

    async def on_kill(self) -> None:
        """End the trainer, because a user ended or cleared the task, and report it."""
        ending = asyncio.ensure_future(self._end_trainer())
        TrainerTrigger.endings.add(ending)
        ending.add_done_callback(TrainerTrigger.endings.discard)
        # Airflow 3.3 cancels the trigger, and so this method, again every second.
        await asyncio.shield(ending)

    async def _end_trainer(self) -> None:
        runner, store = await self._open()
        await in_thread(runner.stop, self.key)
        if self.status is not None:
            # Not asked whether the task was ended or cleared: the triggerer's first request to Airflow blocks
            # it for seconds. The next try of a task that was cleared soon reports over this.
            await in_thread(lambda: self._reporter(store).interrupted(retried=False))

    async def _open(self) -> tuple[Runner, Store]:
        settings = airflow_settings()
        return await in_thread(load_runner, settings), await in_thread(open_root, settings)

    def _reporter(self, store: Store) -> StatusReporter:
        return StatusReporter(**self.status or {}, store=store)

    def _forward(self, runner: Runner, store: Store) -> None:
        try:
            lines, self._position = runner.read_log(self.key, self._position)
            for line in lines:
                self.log.info("%s", line)
        except Exception as error:  # noqa: BLE001 - a runner's own errors; the log is not worth a training
            self.log.warning("cannot read the trainer's log: %s", error)
        if self.status is None:
            return
        # Not written yet, or the store is unavailable: the next read may succeed.
        with suppress(DmlsError, ValueError):
            message = _describe(json.loads(store.get(self.folder + "progress.json")))
            if message != self._message:
                self._reporter(store).running(message)
                self._message = message

    def _finish(self, runner: Runner, store: Store, end: TrainerExit) -> TrainerExit:
        """Record how the trainer ended, and remove what is left of it."""
        if end.details:
            self.log.info("The trainer has ended: %s", json.dumps(dict(end.details), sort_keys=True))
        end = record_exit(store, self.folder + runner_file(self.worker), runner, self.key, end)
        runner.stop(self.key)
        return end


def record_exit(store: Store, path: str, runner: Runner, key: str, end: TrainerExit) -> TrainerExit:
    """Write the run's ``runner.json``; return an earlier record's exit if the trainer is gone since then."""
    if end.code == LOST:
        with suppress(ObjectMissingError, ValueError):
            earlier = json.loads(store.get(path))
            if earlier.get("key") == key:
                return TrainerExit(earlier["exit_code"], earlier.get("reason", ""))
    record = {"schema": 1, "runner": runner.settings.runner, "key": key, "exit_code": end.code}
    store.put(path, json.dumps({**record, "reason": end.reason, **end.details}).encode())
    return end


def runner_file(worker: int) -> str:
    """Return the name of the file in the run's folder that records how a trainer ended."""
    return f"runner-{worker}.json" if worker else "runner.json"


def _describe(progress: dict[str, object]) -> str:
    """Return the trainer's progress in a few words: ``training 3/5, best so far 0.9583``."""
    state = progress.get("state")
    if state != "searching":
        return str(progress.get("message") or state)
    best = progress.get("best")
    text = f"training {progress.get('finished')}/{progress.get('total')}"
    return f"{text}, best so far {best:.4f}" if isinstance(best, float) else text
