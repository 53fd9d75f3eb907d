"""The trigger of the intake: what it reports, and how often."""

from __future__ import annotations

import asyncio

from dmls_core.airflow.intake import submission_trigger
from dmls_core.airflow.intake.submission_trigger import SubmissionTrigger
from dmls_core.intake import State, find_submissions, read_status, write_status
from dmls_core.intake.status import CHECKING
from dmls_core.intake.unanswered import RejectedSubmissions, Waits, statuses_in, unanswered
from dmls_core.store import open_store
from dmls_core.store.local import LocalStore
from dmls_core.testing.stores import run_coroutine


def test_a_submission_without_an_answer_is_reported_until_it_has_one(root, monkeypatch) -> None:
    monkeypatch.setattr(submission_trigger, "UNANSWERED_AFTER", 0.2)
    monkeypatch.setattr(submission_trigger, "CHECKING_AFTER", 0.2)
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


def test_a_submission_is_being_checked_after_seconds_whatever_the_intake_does(root, monkeypatch) -> None:
    """As many as there are, while no run of the intake answers."""
    monkeypatch.setattr(submission_trigger, "CHECKING_AFTER", 0.2)
    store, jobs = open_store(str(root)), [f"job{number}" for number in range(30)]
    for job in jobs:
        store.put(f"incoming/lab/{job}/spec.toml", b"x")
    answer(store, jobs[0], "accepted")

    def states() -> list[tuple[str, bool]]:
        statuses = [read_status(store, "lab", job) for job in jobs]
        return [(one.state, one.message.endswith(CHECKING)) for one in statuses if one]

    async def watch() -> None:
        async for _ in SubmissionTrigger(str(root), "", poll_seconds=0.05).run():
            pass

    async def wait() -> None:
        watching = asyncio.ensure_future(watch())
        while len(await asyncio.to_thread(states)) < len(jobs):
            await asyncio.sleep(0.02)
        watching.cancel()

    run_coroutine(asyncio.wait_for(wait(), timeout=10))
    assert states() == [("accepted", False)] + [("waiting", True)] * 29


def test_an_answer_that_is_newer_than_the_listing_counts(root, monkeypatch) -> None:
    monkeypatch.setattr(submission_trigger, "UNANSWERED_AFTER", 0.2)
    monkeypatch.setattr(submission_trigger, "CHECKING_AFTER", 0.2)
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


def test_a_rejected_submission_is_reported_again(root, monkeypatch) -> None:
    """What it lacked may be there by now."""
    monkeypatch.setattr(submission_trigger, "UNANSWERED_AFTER", 0.2)
    monkeypatch.setattr(submission_trigger, "CHECKING_AFTER", 0.2)
    monkeypatch.setattr(submission_trigger, "REJECTED_AFTER", 0.2)
    store = open_store(str(root))
    for job, state in (("iris", "rejected"), ("done", "accepted")):
        store.put(f"incoming/lab/{job}/spec.toml", b"x")
        answer(store, job, state)

    async def events(count: int) -> list[object]:
        watch = SubmissionTrigger(str(root), "", poll_seconds=0.05).run()
        return [(await anext(watch)).payload["changed"] for _ in range(count)]

    _, *later = run_coroutine(asyncio.wait_for(events(3), timeout=60))
    assert later == [[("lab", "iris")]] * 2


def test_the_rejected_ones(root) -> None:
    store, rejections = open_store(str(root)), RejectedSubmissions()
    store.put("incoming/lab/iris/spec.toml", b"x")
    iris, nothing = ("lab", "iris"), set[tuple[str, str]]()

    def found(changed: set[tuple[str, str]]) -> set[tuple[str, str]]:
        fingerprints = {(one.team, one.job): one.fingerprint for one in find_submissions(store)}
        return rejections.update(store, changed, fingerprints)

    assert found({iris}) == nothing, "without an answer"
    answer(store, "iris")
    assert found(nothing) == {iris}
    assert rejections.still_rejected(store, [iris]) == [iris]
    answer(store, "iris", "accepted")
    assert rejections.still_rejected(store, [iris]) == []
    assert found(nothing) == nothing
    store.put("incoming/lab/iris/spec.toml", b"y")
    answer(store, "iris")
    assert found({iris}) == {iris}
    store.delete("incoming/lab/iris/spec.toml")
    assert found({iris}) == nothing


def test_waits_become_longer_up_to_a_limit() -> None:
    waits, one = Waits(1, 4), ("lab", "iris")
    times = [now for now in range(20) if waits.due([one], {one} if now in (0, 14) else (), now)]
    assert times == [1, 3, 7, 11, 15, 17]


def answer(store: LocalStore, job: str, state: State = "rejected") -> None:
    (found,) = [entry for entry in find_submissions(store) if entry.job == job]
    write_status(store, "lab", job, state, "", fingerprint=found.fingerprint)


def test_what_is_unanswered(root) -> None:
    store = open_store(str(root))

    def found() -> list[tuple[str, str]]:
        listing = list(store.list("incoming/"))
        return unanswered(store, find_submissions(store), statuses_in(listing))

    store.put("incoming/lab/iris/spec.toml", b"x")
    assert found() == [("lab", "iris")]
    answer(store, "iris")
    assert found() == []
    store.put("incoming/lab/iris/spec.toml", b"x")
    assert found() == [("lab", "iris")], "the same file again"
