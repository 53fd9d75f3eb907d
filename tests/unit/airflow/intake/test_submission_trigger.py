"""The trigger of the intake: what it reports, and how often."""

from __future__ import annotations

import asyncio

from dmls_core.airflow.intake import submission_trigger
from dmls_core.airflow.intake.submission_trigger import SubmissionTrigger
from dmls_core.intake import find_submissions, write_status
from dmls_core.intake.unanswered import statuses_in, unanswered
from dmls_core.store import open_store
from dmls_core.store.local import LocalStore
from dmls_core.testing.stores import run_coroutine


def test_a_submission_without_an_answer_is_reported_until_it_has_one(root, monkeypatch) -> None:
    monkeypatch.setattr(submission_trigger, "UNANSWERED_AFTER", 0.2)
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
    monkeypatch.setattr(submission_trigger, "UNANSWERED_AFTER", 0.2)
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
