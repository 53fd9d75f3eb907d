"""The wait for a partition: ends when a file of the interval comes, or when the time is over."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest

from dmls_core.airflow.intake import triggers
from dmls_core.airflow.intake.triggers import (
    InterruptionTrigger,
    PartitionTrigger,
    SubmissionTrigger,
)
from dmls_core.errors import ServingError
from dmls_core.intake import find_submissions, write_status
from dmls_core.intake.unanswered import statuses_in, unanswered
from dmls_core.store import open_store
from dmls_core.store.local import LocalStore
from dmls_core.testing.stores import run_coroutine


@pytest.fixture
def trigger(root):
    def _trigger(deadline: datetime) -> PartitionTrigger:
        return PartitionTrigger(
            root=str(root),
            aws_conn_id="",
            folder="incoming/lab/job/",
            path="data/{date}/*.csv",
            timezone="UTC",
            start="2026-01-05T00:00:00+00:00",
            end="2026-01-12T00:00:00+00:00",
            deadline=deadline.isoformat(),
            poll_seconds=0.05,
        )

    return _trigger


def store_is_away_twice(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Let the first two listings fail; return the calls."""
    real, calls = LocalStore.list_async, []

    async def flaky(*arguments):
        calls.append(arguments)
        if len(calls) < 3:
            raise OSError("away")
        return await real(*arguments)

    monkeypatch.setattr(LocalStore, "list_async", flaky)
    return calls


def fire(trigger: PartitionTrigger, arrivals: list[str], root) -> list[object]:
    """Run the trigger while files arrive, one at each moment."""

    async def arrive() -> None:
        for name in arrivals:
            await asyncio.sleep(0.1)
            open_store(str(root)).put(f"incoming/lab/job/data/{name}", b"x")

    async def both() -> list[object]:
        arriving = asyncio.create_task(arrive())
        events = [event.payload async for event in trigger.run()]
        await arriving
        return events

    return run_coroutine(asyncio.wait_for(both(), timeout=60))


def test_it_fires_when_a_file_of_the_interval_comes(trigger, root) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    others = ["2026-01-04/a.csv", "2026-01-12/a.csv", "2026-01-06/a.parquet"]
    events = fire(trigger(later), [*others, "2026-01-06/a.csv"], root)
    assert events == [{"arrived": True}]
    assert open_store(str(root)).head("incoming/lab/job/data/2026-01-06/a.csv")


def test_it_gives_up_at_the_deadline(trigger, root) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=0.3)
    assert fire(trigger(soon), ["2026-01-12/a.csv"], root) == [{"arrived": False}]


def test_what_lies_there_counts_even_after_the_deadline(trigger, root) -> None:
    open_store(str(root)).put("incoming/lab/job/data/2026-01-05/a.csv", b"x")
    assert fire(trigger(datetime.now(UTC) - timedelta(days=1)), [], root) == [{"arrived": True}]


def test_an_outage_of_the_store_does_not_end_the_wait(trigger, root, monkeypatch) -> None:
    calls = store_is_away_twice(monkeypatch)
    open_store(str(root)).put("incoming/lab/job/data/2026-01-05/a.csv", b"x")
    assert fire(trigger(datetime.now(UTC) + timedelta(hours=1)), [], root) == [{"arrived": True}]
    assert len(calls) == 3


def test_a_trigger_is_restored_from_what_it_serializes(trigger) -> None:
    made = trigger(datetime.now(UTC))
    path, arguments = made.serialize()
    assert path == "dmls_core.airflow.intake.triggers.PartitionTrigger"
    assert PartitionTrigger(**arguments).serialize() == made.serialize()


def test_interrupted_changes_are_reported_again_less_and_less_often(root, monkeypatch) -> None:
    monkeypatch.setattr(triggers, "PATIENCE", 0.2)
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


def test_an_outage_of_the_repository_does_not_end_the_watch(root, monkeypatch) -> None:
    monkeypatch.setattr(triggers, "PATIENCE", 0.0)
    store_is_away_twice(monkeypatch)
    open_store(str(root)).put(".dmls/intents/lab.iris.json", b"{}")

    async def first() -> object:
        return (await anext(InterruptionTrigger(str(root), "", poll_seconds=0.05).run())).payload

    assert run_coroutine(asyncio.wait_for(first(), timeout=60)) == {"models": ["lab.iris"]}


def test_a_submission_without_an_answer_is_reported_until_it_has_one(root, monkeypatch) -> None:
    monkeypatch.setattr(triggers, "UNANSWERED_AFTER", 0.2)
    store = open_store(str(root))
    store.put("incoming/lab/iris/spec.toml", b"x")
    store.put("incoming/lab/done/spec.toml", b"x")
    answer(store, "done")

    async def events(count: int) -> list[object]:
        found: list[object] = []
        async for event in SubmissionTrigger(str(root), "", poll_seconds=0.05).run():
            found.append(event.payload["changed"])
            if len(found) == count:
                break
        return found

    first, *later = run_coroutine(asyncio.wait_for(events(3), timeout=60))
    assert first == [("lab", "done"), ("lab", "iris")], "after a restart all are reported"
    assert later == [[("lab", "iris")]] * 2


def test_an_answer_that_is_newer_than_the_listing_counts(root, monkeypatch) -> None:
    monkeypatch.setattr(triggers, "UNANSWERED_AFTER", 0.2)
    store = open_store(str(root))
    for job in ("iris", "done"):
        store.put(f"incoming/lab/{job}/spec.toml", b"x")

    async def one_listing(self, prefix, *, poll_seconds):
        yield tuple(self.list(prefix))
        await asyncio.sleep(60)

    monkeypatch.setattr(LocalStore, "watch", one_listing)

    async def events() -> list[object]:
        watch = SubmissionTrigger(str(root), "", poll_seconds=0.05).run()
        first = (await anext(watch)).payload["changed"]
        answer(store, "done")
        return [first, (await anext(watch)).payload["changed"]]

    both = [("lab", "done"), ("lab", "iris")]
    assert run_coroutine(asyncio.wait_for(events(), timeout=30)) == [both, [("lab", "iris")]]


def answer(store: LocalStore, job: str) -> None:
    (found,) = [entry for entry in find_submissions(store) if entry.job == job]
    write_status(store, "lab", job, "rejected", "", fingerprint=found.fingerprint)


def test_what_is_unanswered(root) -> None:
    store = open_store(str(root))
    known: set[str] = set()

    def found() -> list[tuple[str, str]]:
        listing = list(store.list("incoming/"))
        return unanswered(store, find_submissions(store), statuses_in(listing), known)

    store.put("incoming/lab/iris/spec.toml", b"x")
    assert found() == [("lab", "iris")]
    answer(store, "iris")
    assert found() == []
    store.put("incoming/lab/iris/spec.toml", b"x")
    assert found() == [], "the same file again"
    assert len(known) == 1
    store.put("incoming/lab/iris/spec.toml", b"y")
    assert found() == [("lab", "iris")]


def test_a_shared_process_that_ended_is_reported_and_a_server_that_is_down_is_not(root, monkeypatch) -> None:
    monkeypatch.setattr(triggers, "PROCESS_SECONDS", 0.0)
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
    repeated = triggers._Repeated(patience=5)
    named = [now for now in range(0, 200, 5) if repeated.due({"a"}, now)]
    assert named == [5, 25, 65, 145]
    assert repeated.due(set(), 200) == []
    assert repeated.due({"a"}, 205) == [], "it was well in the meantime: its patience begins anew"
    assert triggers._Repeated(patience=0).due({"b", "a"}, 0) == ["a", "b"]
