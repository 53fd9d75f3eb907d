"""Which of the tasks that wait for a GPU is next."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from dmls_core.airflow.runners import gpu_trigger
from dmls_core.airflow.runners.gpu_placement import GpuSurvey, ProbedGpu
from dmls_core.airflow.runners.gpu_trigger import GpuTrigger
from dmls_core.errors import RunnerError

GIB = 1 << 30


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A runner whose GPUs a test sets, with the number of surveys."""
    state = SimpleNamespace(gpus=[], surveys=0)

    def survey_gpus() -> GpuSurvey:
        state.surveys += 1
        if not state.gpus:
            raise RunnerError("the engine does not answer")
        return GpuSurvey(state.gpus)

    runner = SimpleNamespace(survey_gpus=survey_gpus)
    monkeypatch.setattr(gpu_trigger, "load_runner", lambda _: runner)
    monkeypatch.setattr(gpu_trigger, "airflow_settings", lambda: None)
    monkeypatch.setattr(gpu_trigger, "PROBE_INTERVAL_SECONDS", 0.1)
    monkeypatch.setattr(GpuTrigger, "waiting", set())
    monkeypatch.setattr(GpuTrigger, "survey", (0.0, GpuSurvey()))
    monkeypatch.setattr(GpuTrigger, "surveying", asyncio.Lock())
    return state


def gpu(index: int, used: int = 0) -> ProbedGpu:
    return ProbedGpu(index, f"GPU-{index}", 0.0, used * GIB, 16 * GIB)


def test_a_free_gpu_resumes_the_task_that_waits_longest(machine: SimpleNamespace):
    async def play() -> list[set[float]]:
        triggers = [GpuTrigger(GIB, since, "waits") for since in (3.0, 1.0, 2.0)]
        ends = {trigger.since: asyncio.ensure_future(anext(trigger.run())) for trigger in triggers}
        seen = []
        for gpus in ([], [gpu(0, used=16)], [gpu(0)], [gpu(0), gpu(1)]):
            machine.gpus = gpus
            surveys = machine.surveys
            while machine.surveys < surveys + 4:
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.05)
            seen.append({since for since, end in ends.items() if end.done()})
        for end in ends.values():
            end.cancel()
        await asyncio.gather(*ends.values(), return_exceptions=True)
        return seen

    # The first one has not leased its GPU yet when the third look finds two free.
    assert asyncio.run(play()) == [set(), set(), {1.0}, {1.0, 2.0}]


def test_one_survey_serves_all_that_wait(machine: SimpleNamespace):
    machine.gpus = [gpu(0, used=16)]

    async def play() -> None:
        ends = [asyncio.ensure_future(anext(GpuTrigger(GIB, since, "waits").run())) for since in range(1, 30)]
        await asyncio.sleep(0.45)
        for end in ends:
            end.cancel()
        await asyncio.gather(*ends, return_exceptions=True)

    asyncio.run(play())
    assert 1 <= machine.surveys <= 12
    assert GpuTrigger.waiting == set()
