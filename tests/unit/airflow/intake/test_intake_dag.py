"""The intake: every submission gets an answer, whatever the others are."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest

from dmls_core.airflow.intake import intake_dag
from dmls_core.errors import PlatformError, StoreError
from dmls_core.intake import admit, read_status
from dmls_core.store import open_store
from dmls_core.store.local import LocalStore

JOBS = ("bad", "good", "other")


@pytest.fixture
def store(root, monkeypatch) -> LocalStore:
    """A store with the specs of several jobs, which wait for their data."""
    store = open_store(str(root))
    spec = b'model = "random-forest-classifier"\n[columns]\ntarget = "y"\n'
    for job in JOBS:
        store.put(f"incoming/lab/{job}/spec.toml", spec)
    monkeypatch.setattr(intake_dag, "open_root", lambda _: store)
    monkeypatch.setattr(intake_dag, "PAUSE", 0)
    return store


def run() -> list[str]:
    """Admit all submissions and return their states."""
    return [outcome["state"] for outcome in intake_dag.AdmitOperator(task_id="admit").execute({})]


def message(store: LocalStore, job: str) -> str:
    status = read_status(store, "lab", job)
    return status.message if status else ""


def test_a_slow_check_delays_no_other(store, monkeypatch) -> None:
    expected = ["", "Waiting for data", "Waiting for data"]
    seen = [""] * 3

    def slow(store: LocalStore, team: str, job: str, **options: Any) -> object:
        end = time.monotonic() + 30
        while job == "bad" and seen != expected and time.monotonic() < end:
            time.sleep(0.01)
            seen[:] = [message(store, one)[: len(start)] for one, start in zip(JOBS, expected, strict=True)]
        return admit(store, team, job, **options)

    monkeypatch.setattr(intake_dag, "admit", slow)
    monkeypatch.setattr(intake_dag, "available_memory", lambda: 64 << 30)
    assert run() == ["waiting", "waiting", "waiting"]
    assert seen == expected
    assert message(store, "bad").startswith("Waiting for data")


def test_a_fault_of_dmls_becomes_an_answer_after_some_tries(store, monkeypatch) -> None:
    tries: Counter[str] = Counter()

    def failing(store: LocalStore, team: str, job: str, **options: Any) -> object:
        tries[job] += 1
        if job == "bad":
            raise KeyError("x")
        if job == "other" and tries[job] < intake_dag.TRIES:
            raise PlatformError("the process that read it was ended from outside by SIGTERM")
        return admit(store, team, job, **options)

    monkeypatch.setattr(intake_dag, "admit", failing)
    assert run() == ["rejected", "waiting", "waiting"]
    assert tries == {"bad": intake_dag.TRIES, "good": 1, "other": intake_dag.TRIES}
    status = read_status(store, "lab", "bad")
    assert status
    assert status.errors[0].message == "DMLS failed on this file: KeyError('x')"
    assert "the file may be fine" in status.message
    monkeypatch.setattr(intake_dag, "admit", admit)
    assert run() == ["waiting", "waiting", "waiting"], "checked again: the cause lies outside of its files"


def test_a_store_that_is_down_stops_the_run(store, monkeypatch) -> None:
    monkeypatch.setattr(intake_dag, "CHECKS", 1)
    tries: list[str] = []

    def failing(_: LocalStore, __: str, job: str, **___: Any) -> object:
        tries.append(job)
        raise StoreError("503 Slow Down")

    def down(*_: object) -> None:
        raise StoreError("down")

    monkeypatch.setattr(intake_dag, "admit", failing)
    monkeypatch.setattr(LocalStore, "head", down)
    with pytest.raises(StoreError, match="down"):
        run()
    assert len(tries) <= 3, "the store is not asked again"


@pytest.mark.parametrize(("gibibytes", "checks"), [(256, 4), (16, 2), (8, 1), (1, 1)])
def test_checks_take_half_of_the_memory_at_most(monkeypatch, gibibytes: int, checks: int) -> None:
    monkeypatch.setattr(intake_dag, "available_memory", lambda: gibibytes << 30)
    assert intake_dag.checks_at_once() == checks
