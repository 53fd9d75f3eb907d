"""The trigger of the repair: what it reports, and how often."""

from __future__ import annotations

import asyncio
import time

from dmls_core.airflow.operations import interruption_trigger
from dmls_core.airflow.operations.interruption_trigger import InterruptionTrigger
from dmls_core.errors import ServingError
from dmls_core.monitoring.reconcile import ReconcileResult
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


def test_a_process_that_cannot_be_reloaded_is_reported_and_a_failed_look_is_repeated(
    root, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(interruption_trigger, "PROCESS_SECONDS", 0.01)
    looks = [
        ServingError("no address"),
        ReconcileResult(["reloaded"]),
        ReconcileResult(failures=["it ended"]),
    ]
    asked = []

    def look(self, servers):
        asked.append([client.addresses["http"] for client in servers])
        one = looks.pop(0) if len(looks) > 1 else looks[0]
        if isinstance(one, Exception):
            raise one
        return one

    monkeypatch.setattr("dmls_core.monitoring.processes.ProcessWatch.look", look)
    monkeypatch.setattr("dmls_core.monitoring.request_counts.RequestCounter.record", lambda *_: None)

    async def first() -> object:
        trigger = InterruptionTrigger(str(root), "", 0.05, "one,two", "a,b", str(tmp_path / "root"))
        assert InterruptionTrigger(**trigger.serialize()[1]).serialize() == trigger.serialize()
        return (await anext(trigger.run())).payload

    assert run_coroutine(asyncio.wait_for(first(), timeout=60)) == {"processes": ["it ended"]}
    assert asked[:3] == [["one", "two"]] * 3


def test_what_stays_as_it_is_is_named_less_and_less_often() -> None:
    repeated = interruption_trigger._Repeated(patience=5)
    named = [now for now in range(0, 200, 5) if repeated.due({"a"}, now)]
    assert named == [5, 25, 65, 145]
    assert repeated.due(set(), 200) == []
    assert repeated.due({"a"}, 205) == [], "it was well in the meantime: its patience begins anew"
    assert interruption_trigger._Repeated(patience=0).due({"b", "a"}, 0) == ["a", "b"]
