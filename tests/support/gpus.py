"""Simulated GPUs: a program that answers as ``nvidia-smi`` does, and how a trainer waits for one of them."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any, ClassVar

import pytest
from airflow.sdk.exceptions import TaskDeferred

from dmls_core.airflow.runners import gpu_trigger
from dmls_core.airflow.runners.gpu_placement import GpuSurvey
from dmls_core.airflow.runners.gpu_trigger import GpuTrigger
from dmls_core.airflow.runners.process import gpus as process_gpus
from dmls_core.intake import read_status
from dmls_core.store.waiting_queue import enqueue, waiting_since
from dmls_core.testing.trainer_program import SECONDS, Launch, wait_for


def gpu_lines(*gpus: tuple[int, int, int]) -> str:
    """Return what ``nvidia-smi`` prints about GPUs of (utilization in percent, used MiB, total MiB)."""
    return "".join(
        f"{index}, GPU-{index}{index}{index}, {percent}, {used}, {total}\n"
        for index, (percent, used, total) in enumerate(gpus)
    )


def smi_program(lines: str) -> str:
    """Return a program that prints them as ``nvidia-smi`` prints GPUs, and refuses unknown queries."""
    return f"""#!/bin/sh
case "$*" in
  "--query-gpu=index,uuid,utilization.gpu,memory.used,memory.total --format=csv,noheader,nounits") ;;
  *) echo "unexpected arguments: $*"; exit 2 ;;
esac
cat <<'END'
{lines}END
"""


def simulate_gpus(folder: Path, monkeypatch: pytest.MonkeyPatch, *gpus: tuple[int, int, int]) -> None:
    """Put a program ``nvidia-smi`` on the path, and the leases of GPUs into a folder of their own."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    program = programs / "nvidia-smi"
    program.write_text(smi_program(gpu_lines(*gpus)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(process_gpus, "leases_folder", lambda: folder / "leases")


def on_gpu(search: Launch) -> Launch:
    """Return the task with the GPU as its engine."""
    search.operator.plan["engine"] = "gpu"
    return search


class GpuJourney:
    """Tests of a runner that places trainers on GPUs, for a subclass of ``RunnerSuite``.

    The fixture ``two_gpus`` provides two GPUs of 16 GiB, of which other programs use the first.
    """

    device_variable: ClassVar[str]
    """The trainer's variable with its GPU."""

    @pytest.fixture(autouse=True)
    def _one_loop_each(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(GpuTrigger, "waiting", set())
        monkeypatch.setattr(GpuTrigger, "survey", (0.0, GpuSurvey()))
        monkeypatch.setattr(GpuTrigger, "surveying", asyncio.Lock())
        monkeypatch.setattr(gpu_trigger, "PROBE_INTERVAL_SECONDS", 0.5)

    @pytest.mark.usefixtures("two_gpus")
    def test_a_trainer_takes_the_free_gpu_and_another_waits_for_it(
        self, launch: Any, runner: Any, store: Any
    ) -> None:
        first = on_gpu(launch("hang"))
        running = first.start()
        wait_for(lambda: store.head(first.run_file("environment.json")) is not None)
        environment = json.loads(store.get(first.run_file("environment.json")))
        assert environment[self.device_variable] in ("1", "GPU-111")
        assert runner.survey_gpus().leases == {1: 1}

        second = on_gpu(launch("succeed"))
        enqueue(store, "gpu", "suite", "succeed", second.record.run_key)
        with pytest.raises(TaskDeferred) as deferred:
            second.operator.execute(second.context)
        assert deferred.value.method_name == "start_on_gpu"
        path, arguments = deferred.value.trigger.serialize()
        assert path.endswith(".GpuTrigger")
        assert arguments["reason"] == "waits for a GPU: 2 of 2 in use, 1 by other programs"
        status = read_status(store, "suite", "succeed")
        assert status is not None
        assert status.message == f"It {arguments['reason']}"
        assert list(waiting_since(store, "gpu")) == [second.record.run_key]

        trigger = GpuTrigger(**json.loads(json.dumps(arguments)))

        async def wait_and_free() -> Any:
            waiting = asyncio.ensure_future(anext(trigger.run()))
            await asyncio.sleep(2)
            assert not waiting.done()
            await asyncio.to_thread(runner.stop, running.key)
            return await asyncio.wait_for(waiting, SECONDS)

        event = asyncio.run(wait_and_free())
        assert event.payload == {"since": arguments["since"]}
        second = on_gpu(launch("succeed"))  # in another worker
        with pytest.raises(TaskDeferred) as resumed:
            second.operator.start_on_gpu(second.context, event=event.payload)
        assert resumed.value.method_name == "finish"
        assert waiting_since(store, "gpu") == {}
        watched = second.restore(resumed.value.trigger)

        async def end() -> Any:
            return await anext(watched.run())

        assert second.finish(asyncio.run(end()))["score"] == 0.95
        assert runner.survey_gpus().leases == {}

    @pytest.mark.usefixtures("two_gpus")
    def test_a_user_who_ends_a_waiting_task_finds_that_in_the_status(
        self, launch: Any, runner: Any, store: Any
    ) -> None:
        running = on_gpu(launch("hang")).start()
        second = on_gpu(launch("succeed"))
        with pytest.raises(TaskDeferred) as deferred:
            second.operator.execute(second.context)
        asyncio.run(deferred.value.trigger.on_kill())
        status = read_status(store, "suite", "succeed")
        assert status is not None
        assert status.message.startswith("The training was stopped")
        runner.stop(running.key)
