"""The trigger that watches a trainer, with a runner that plays the service."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import suppress
from types import SimpleNamespace

import pytest

from dmls_core.airflow.runners import LOST, TrainerExit, trainer_events, trainer_trigger
from dmls_core.airflow.runners.trainer_trigger import TrainerTrigger, record_exit
from dmls_core.airflow.settings import AirflowSettings
from dmls_core.errors import StoreError
from dmls_core.intake import read_status, write_status
from dmls_core.store import open_store


class Service:
    """A runner whose trainer writes its only line just before it ends."""

    sends_events = False
    service_errors = (OSError,)

    def __init__(self, settings) -> None:
        self.settings = settings
        self.ended = asyncio.Event()
        self.release = threading.Event()
        self.stopped: list[str] = []

    def exit_of(self, _):
        return TrainerExit(0) if self.ended.is_set() else None

    def read_log(self, _, position):
        return ([], "") if not self.ended.is_set() or position else (["the last line"], "1")

    def stop(self, key):
        self.release.wait(10)
        self.stopped.append(key)


@pytest.fixture
def service(tmp_path, monkeypatch):
    settings = AirflowSettings(root=str(tmp_path), runner="process")
    found = Service(settings)
    monkeypatch.setattr(trainer_trigger, "airflow_settings", lambda: settings)
    monkeypatch.setattr(trainer_trigger, "load_runner", lambda _: found)
    monkeypatch.setattr(trainer_events, "POLL_SECONDS", 0.01)
    return found


def test_the_last_lines_are_forwarded_and_an_outage_of_the_store_delays_the_result(
    service, tmp_path, monkeypatch
):
    monkeypatch.setattr(trainer_trigger, "PROGRESS_SECONDS", 0.01)
    monkeypatch.setattr(trainer_trigger, "RETRY_SECONDS", 0.01)
    lines: list[str] = []
    log = SimpleNamespace(info=lambda text, *a: lines.append(text % a), exception=lines.append)
    monkeypatch.setattr(TrainerTrigger, "log", log)
    outages = [StoreError("down"), StoreError("down")]
    service.release.set()

    def record(*arguments):
        if outages:
            raise outages.pop()
        return record_exit(*arguments)

    monkeypatch.setattr(trainer_trigger, "record_exit", record)

    async def watch():
        trigger = TrainerTrigger("key", "runs/a/b/c/", worker=1)
        asyncio.get_running_loop().call_later(0.1, service.ended.set)
        return [event.payload async for event in trigger.run()]

    assert asyncio.run(watch()) == [{"code": 0, "reason": ""}]
    assert "the last line" in lines
    assert len([line for line in lines if "trying again" in line]) == 2
    assert service.stopped == ["key"]
    assert TrainerTrigger.watched == 0
    document = json.loads(open_store(str(tmp_path)).get("runs/a/b/c/runner-1.json"))
    assert (document["key"], document["exit_code"]) == ("key", 0)


@pytest.mark.parametrize(
    ("ended", "message"),
    [
        (TrainerExit(0), "training 24/150"),
        (TrainerExit(137, "was killed"), "The trainer was killed. No trainer runs now"),
        (TrainerExit(3), "The trainer exited with code 3. No trainer runs now"),
    ],
)
def test_the_status_says_at_once_that_no_trainer_runs(service, accept, root, monkeypatch, ended, message):
    store, key = open_store(str(root)), accept("lab", "iris").run_key
    monkeypatch.setattr(trainer_trigger, "open_root", lambda _: store)
    write_status(store, "lab", "iris", "running", "training 24/150", run_key=key)
    monkeypatch.setattr(service, "exit_of", lambda _: ended)
    service.release.set()
    run = {"team": "lab", "job": "iris", "run_key": key, "run": "", "backfill": False}

    async def watch():
        trigger = TrainerTrigger("key", "runs/lab/iris/k/", status={"run": run, "links": {}})
        return [event.payload["code"] async for event in trigger.run()]

    assert asyncio.run(watch()) == [ended.code]
    assert read_status(store, "lab", "iris").message == message


def test_a_kill_that_airflow_cancels_again_still_ends_the_trainer(service):
    async def kill():
        killing = asyncio.ensure_future(TrainerTrigger("key", "runs/a/b/c/", worker=1).on_kill())
        await asyncio.sleep(0.1)
        killing.cancel()
        with suppress(asyncio.CancelledError):
            await killing
        assert service.stopped == []
        service.release.set()
        await asyncio.gather(*TrainerTrigger.endings)

    asyncio.run(kill())
    assert service.stopped == ["key"]


def test_a_record_of_the_same_trainer_answers_for_one_that_is_gone(service, tmp_path):
    store, gone = open_store(str(tmp_path)), TrainerExit(LOST, "was lost")
    record_exit(store, "runner.json", service, "one", TrainerExit(3))
    assert record_exit(store, "runner.json", service, "one", gone).code == 3
    assert record_exit(store, "runner.json", service, "two", gone) == gone
