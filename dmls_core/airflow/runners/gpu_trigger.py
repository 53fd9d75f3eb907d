"""The trigger that waits for a free GPU in the triggerer, while its task holds no worker.

Airflow's database stores its class path: moving it breaks tasks that wait during an upgrade.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar

from airflow.triggers.base import BaseTrigger, TriggerEvent

from dmls_core.airflow.runners.gpu_placement import GpuSurvey
from dmls_core.airflow.runners.runner import in_thread, load_runner
from dmls_core.airflow.runs.status import StatusReporter
from dmls_core.airflow.settings import airflow_settings, open_root

PROBE_INTERVAL_SECONDS = 10.0
"""Interval between two surveys of the GPUs, for all waiting tasks of a triggerer together."""

_LEASE_SECONDS = 20.0
"""Time in which a task must lease the GPU that its trigger selected."""


class GpuTrigger(BaseTrigger):
    """Resume a trainer's task when a GPU is free for it; of several tasks, those that wait longest.

    ``memory`` is what the trainer needs on the GPU, ``since`` when it began to wait, ``reason`` why it waits,
    and ``status``, for a run's leader, the arguments of a ``StatusReporter``.
    """

    waiting: ClassVar[set[GpuTrigger]] = set()
    """The triggers of this process."""

    survey: ClassVar[tuple[float, GpuSurvey]] = (0.0, GpuSurvey())
    """The last survey of this process, and its time."""

    surveying: ClassVar[asyncio.Lock] = asyncio.Lock()

    def __init__(
        self, memory: int, since: float, reason: str, status: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.memory = memory
        self.since = since
        self.reason = reason
        self.status = status

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments."""
        arguments = {
            "memory": self.memory,
            "since": self.since,
            "reason": self.reason,
            "status": self.status,
        }
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield ``since`` once there is a GPU for this task beside those for tasks that wait longer."""
        GpuTrigger.waiting.add(self)
        try:
            while not await self._is_next():
                await asyncio.sleep(PROBE_INTERVAL_SECONDS)
        except BaseException:
            GpuTrigger.waiting.discard(self)
            raise
        # The GPU is free until the task has leased it: others must not take it for theirs.
        asyncio.get_running_loop().call_later(_LEASE_SECONDS, GpuTrigger.waiting.discard, self)
        yield TriggerEvent({"since": self.since})  # type: ignore[no-untyped-call]

    async def _is_next(self) -> bool:
        try:
            survey = await self._survey()
        except Exception as error:  # noqa: BLE001 - a runner's own errors; the next survey may succeed
            self.log.warning("cannot survey the GPUs: %s", error)
            return False
        ahead = sum(other.since < self.since for other in GpuTrigger.waiting)
        if ahead < len(survey.free(self.memory)):
            return True
        if (reason := survey.reason(self.memory)) != self.reason:
            self.reason = reason
            self.log.info("The run %s", reason)
            if self.status is not None:
                await in_thread(self._report, f"It {reason}")
        return False

    async def _survey(self) -> GpuSurvey:
        async with GpuTrigger.surveying:
            at, survey = GpuTrigger.survey
            if time.monotonic() - at >= PROBE_INTERVAL_SECONDS / 2 or not at:
                runner = await in_thread(load_runner, airflow_settings())
                survey = await in_thread(runner.survey_gpus)
                GpuTrigger.survey = (time.monotonic(), survey)
            return survey

    def _report(self, message: str) -> None:
        StatusReporter(**self.status or {}, store=open_root(airflow_settings())).running(message)

    async def on_kill(self) -> None:
        """Report that a user ended or cleared the task; there is no trainer to end."""
        if self.status is not None:
            reporter = StatusReporter(**self.status, store=await in_thread(open_root, airflow_settings()))
            await in_thread(lambda: reporter.interrupted(retried=False))
