"""The trigger that watches a search's helper, and takes its slot back when another run waits for it.

Airflow's database stores its class path: moving it breaks tasks that wait during an upgrade.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from typing import Any, ClassVar

from dmls_core.airflow.runners.runner import Runner, TrainerExit, in_thread
from dmls_core.airflow.runners.trainer_trigger import TrainerTrigger
from dmls_core.errors import DmlsError
from dmls_core.search.study.elastic import LAST_TRIAL_SECONDS, Helper, SlotReturns
from dmls_core.store import Store, layout
from dmls_core.store.waiting_queue import waiting_since

QUEUE_SECONDS = 2.0
"""Interval between two looks at the queue of an engine, for all helpers of a triggerer together."""


class HelperTrigger(TrainerTrigger):
    """Watch a helper's trainer until it has ended, by itself or for a run in the queue of ``engine``.

    The trainer leaves after its trial. If that takes longer than ``LAST_TRIAL_SECONDS``, it is ended, and
    another worker repeats the trial. Triggerers do not know of each other's helpers: each may ask one for
    the same run. Those that left for nothing come back.
    """

    returns: ClassVar[defaultdict[str, SlotReturns]] = defaultdict(SlotReturns)
    """Helpers that this process watches, by engine."""

    queues: ClassVar[dict[str, tuple[float, list[float]]]] = {}
    """The last look at each engine's queue, and its time."""

    def __init__(self, key: str, folder: str, worker: int, engine: str, since: float) -> None:
        super().__init__(key, folder, worker)
        self.engine = engine
        self.since = since

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments."""
        path, arguments = super().serialize()
        del arguments["status"]
        return path, arguments | {"engine": self.engine, "since": self.since}

    async def _wait(self, runner: Runner, store: Store) -> TrainerExit:
        end = asyncio.ensure_future(super()._wait(runner, store))
        late = asyncio.ensure_future(self._watch_queue(store))
        try:
            await asyncio.wait({end, late}, return_when=asyncio.FIRST_COMPLETED)
            if end.done():
                return end.result()
            late.result()
            self.log.info(
                "Stopping the trainer: its trial did not finish in time, and another run needs the slot"
            )
            return TrainerExit(0, "was ended for a run that waits")
        finally:
            end.cancel()
            late.cancel()

    async def _watch_queue(self, store: Store) -> None:
        """Ask the trainer to leave when a run needs its slot; return when its time for that is over."""
        returns = HelperTrigger.returns[self.engine]
        helper = Helper(self.folder, self.worker, self.since)
        request, asked = self.folder + layout.leave(self.worker), False
        returns.add(helper)
        try:
            while True:
                await asyncio.sleep(QUEUE_SECONDS)
                try:
                    waiting = await self._waiting(store)
                    now = time.time()
                    since = returns.leaving(waiting, now).get(helper)
                    if since is not None and not asked:
                        self.log.info("Another run needs this slot: asking the trainer to leave the search")
                        await in_thread(store.put, request, b"")
                        asked = True
                except DmlsError as error:
                    self.log.warning("cannot see the queue (%s); trying again", error)
                    continue
                if since is not None and now - since >= LAST_TRIAL_SECONDS:
                    return
        finally:
            returns.remove(helper, time.time())

    async def _waiting(self, store: Store) -> list[float]:
        at, waiting = HelperTrigger.queues.get(self.engine, (0.0, []))
        if time.monotonic() - at >= QUEUE_SECONDS / 2 or not at:
            waiting = list((await in_thread(waiting_since, store, self.engine)).values())
            HelperTrigger.queues[self.engine] = (time.monotonic(), waiting)
        return waiting
