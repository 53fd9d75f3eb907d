"""The trigger of the repair: what it reports, and how often."""

from __future__ import annotations

import asyncio
import time

from dmls_core.airflow.operations import interruption_trigger
from dmls_core.airflow.operations.interruption_trigger import InterruptionTrigger
from dmls_core.errors import ServingError
from dmls_core.store import open_store
from dmls_core.testing.stores import run_coroutine


def test_interrupted_changes_are_reported_again_less_and_less_often(root, monkeypatch) -> None:
    monkeypatch.setattr(interruption_trigger, "PATIENCE", 0.2)
    store = open_store(str(root))
    store.put(".dmls/intents/lab.quick.json", b"{}")
    store.put(".dmls/intents/lab.iris.json", b"{}")

    async def first_events(count: int) -> list[tuple[float, object]]:
        trigger = InterruptionTrigger(str(root), "", poll_seconds=0.05)
        found: list[tuple[float, object]] = []
        started = time.monotonic()
        store.delete(".dmls/intents/lab.quick.json")
        async for event in trigger.run():
            found.append((time.monotonic() - started, event.payload))
            if len(found) == count:
                break
        return found

    events = run_coroutine(asyncio.wait_for(first_events(3), timeout=60))
    assert [payload for _, payload in events] == [{"models": ["lab.iris"]}] * 3
    (first, _), (second, _), (third, _) = events
    assert first >= 0.2, "a change in progress is left alone"
    assert second - first >= 0.4
    assert third - second >= 0.8


def test_an_outage_of_the_repository_does_not_end_the_watch(root, monkeypatch, outages) -> None:
    monkeypatch.setattr(interruption_trigger, "PATIENCE", 0.0)
    open_store(str(root)).put(".dmls/intents/lab.iris.json", b"{}")

    async def first() -> object:
        return (await anext(InterruptionTrigger(str(root), "", poll_seconds=0.05).run())).payload

    assert run_coroutine(asyncio.wait_for(first(), timeout=60)) == {"models": ["lab.iris"]}


def test_a_shared_process_that_ended_is_reported_and_a_server_that_is_down_is_not(root, monkeypatch) -> None:
    monkeypatch.setattr(interruption_trigger, "PROCESS_SECONDS", 0.0)
    open_store(str(root)).put("dmls-shared/config.pbtxt", b"x")
    states = {"one": True, "two": False}

    def process_runs(client) -> bool:
        address = client.addresses["http"]
        if address not in states:
            raise ServingError("Triton does not answer")
        return states[address]

    monkeypatch.setattr("dmls_core.serving.repository.shared_process.process_runs", process_runs)

    async def first() -> object:
        trigger = InterruptionTrigger(str(root), "", 0.05, "one,two,down", "a,b,c")
        assert InterruptionTrigger(**trigger.serialize()[1]).serialize() == trigger.serialize()
        return (await anext(trigger.run())).payload

    assert run_coroutine(asyncio.wait_for(first(), timeout=60)) == {"processes": ["two"]}


def test_what_stays_as_it_is_is_named_less_and_less_often() -> None:
    repeated = interruption_trigger._Repeated(patience=5)
    named = [now for now in range(0, 200, 5) if repeated.due({"a"}, now)]
    assert named == [5, 25, 65, 145]
    assert repeated.due(set(), 200) == []
    assert repeated.due({"a"}, 205) == [], "it was well in the meantime: its patience begins anew"
    assert interruption_trigger._Repeated(patience=0).due({"b", "a"}, 0) == ["a", "b"]
