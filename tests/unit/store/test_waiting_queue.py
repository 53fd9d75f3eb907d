"""Runs that wait for their first trainer."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from dmls_core.store import Store, layout, open_store
from dmls_core.store.waiting_queue import EXPIRY_SECONDS, MIN_WAIT_SECONDS, dequeue, enqueue, has_waiting_run


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path))


def queue(tmp_path: Path, engine: str = "cpu") -> Store:
    return open_store(str(tmp_path / layout.queue_folder(engine)))


def age(tmp_path: Path, seconds: float) -> None:
    for path in (tmp_path / "waiting").rglob("*.json"):
        then = time.time() - seconds
        os.utime(path, (then, then))


def test_a_run_waits_from_plan_until_its_first_trainer_starts(store: Store, tmp_path: Path):
    assert not has_waiting_run(queue(tmp_path))
    enqueue(store, "cpu", "lab", "iris", "0a1b")
    assert not has_waiting_run(queue(tmp_path))  # most runs start sooner

    age(tmp_path, MIN_WAIT_SECONDS + 5)
    assert has_waiting_run(queue(tmp_path))
    assert not has_waiting_run(queue(tmp_path, "gpu"))
    assert has_waiting_run(store, layout.queue_folder("cpu"))
    assert not has_waiting_run(store, layout.queue_folder("cpu"), other_than="0a1b")

    dequeue(store, "cpu", "lab", "iris", "0a1b")
    assert not has_waiting_run(queue(tmp_path))


def test_a_run_expires_in_the_queue(store: Store, tmp_path: Path):
    enqueue(store, "cpu", "lab", "iris", "0a1b")
    age(tmp_path, EXPIRY_SECONDS + 5)

    assert not has_waiting_run(queue(tmp_path))
