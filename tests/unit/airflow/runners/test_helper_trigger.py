"""The trigger that watches a helper and takes its slot back, with a runner that plays the service."""

from __future__ import annotations

import asyncio
import os
import time
from collections import defaultdict
from pathlib import Path

import pytest

from dmls_core.airflow.runners import TrainerExit, helper_trigger, trainer_events, trainer_trigger
from dmls_core.airflow.runners.helper_trigger import HelperTrigger
from dmls_core.airflow.settings import AirflowSettings
from dmls_core.search.study.elastic import SlotReturns
from dmls_core.store import open_store
from dmls_core.store.waiting_queue import enqueue


class Service:
    """A runner whose trainers end when the test says so, or when they are stopped."""

    sends_events = False
    service_errors = (OSError,)

    def __init__(self, settings: AirflowSettings) -> None:
        self.settings = settings
        self.ended: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.stopped: list[str] = []

    def exit_of(self, key: str) -> TrainerExit | None:
        return TrainerExit(0) if self.ended[key].is_set() else None

    def read_log(self, _key: str, position: str) -> tuple[list[str], str]:
        return [], position

    def stop(self, key: str) -> None:
        self.stopped.append(key)


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Service:
    settings = AirflowSettings(root=str(tmp_path), runner="process")
    found = Service(settings)
    for module, name, value in [
        (trainer_trigger, "airflow_settings", lambda: settings),
        (trainer_trigger, "load_runner", lambda _: found),
        (trainer_trigger, "PROGRESS_SECONDS", 0.01),
        (trainer_events, "POLL_SECONDS", 0.01),
        (helper_trigger, "QUEUE_SECONDS", 0.02),
        (HelperTrigger, "returns", defaultdict(SlotReturns)),
        (HelperTrigger, "queues", {}),
    ]:
        monkeypatch.setattr(module, name, value)
    return found


def wait_in_queue(root: Path, engine: str = "cpu") -> None:
    enqueue(open_store(str(root)), engine, "lab", "other", "0a1b")
    then = time.time() - 10
    for path in (root / "waiting").rglob("*.json"):
        os.utime(path, (then, then))


def helper(number: int, engine: str = "cpu") -> HelperTrigger:
    path, arguments = HelperTrigger(
        f"key-{number}", "runs/lab/iris/k/", number, engine, time.time()
    ).serialize()
    assert path.endswith(".helper_trigger.HelperTrigger")
    return HelperTrigger(**arguments)


async def event(trigger: HelperTrigger) -> dict:
    return (await anext(trigger.run())).payload


async def until(condition) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


def test_one_helper_of_the_engine_is_asked_to_leave_and_the_others_stay(service: Service, tmp_path: Path):
    wait_in_queue(tmp_path)
    folder = tmp_path / "runs/lab/iris/k"

    async def watch() -> dict:
        tasks = [
            asyncio.ensure_future(event(trigger)) for trigger in (helper(1), helper(2), helper(3, "gpu"))
        ]
        await until((folder / "leave-2").exists)
        service.ended["key-2"].set()  # after its trial
        gone = await tasks[1]
        await asyncio.sleep(0.1)
        assert not any(task.done() for task in (tasks[0], tasks[2]))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return gone

    assert asyncio.run(watch()) == {"code": 0, "reason": ""}
    assert sorted(path.name for path in folder.glob("leave-*")) == ["leave-2"]
    assert service.stopped == ["key-2"]


def test_a_trainer_whose_trial_takes_too_long_is_ended(service: Service, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(helper_trigger, "LAST_TRIAL_SECONDS", 0.1)
    wait_in_queue(tmp_path)

    payload = asyncio.run(event(helper(1)))

    assert payload == {"code": 0, "reason": "was ended for a run that waits"}
    assert service.stopped == ["key-1"]
    assert (tmp_path / "runs/lab/iris/k/leave-1").exists()
