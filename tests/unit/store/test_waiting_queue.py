"""Runs that wait for their first trainer."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from dmls_core.store import Store, open_store
from dmls_core.store.waiting_queue import EXPIRY_SECONDS, dequeue, enqueue, waiting_since


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path))


def age(tmp_path: Path, seconds: float) -> None:
    for path in (tmp_path / "waiting").rglob("*.json"):
        then = time.time() - seconds
        os.utime(path, (then, then))


def test_a_run_waits_from_plan_until_its_first_trainer_starts(store: Store, tmp_path: Path):
    assert waiting_since(store, "cpu") == {}
    enqueue(store, "cpu", "lab", "iris", "0a1b")
    age(tmp_path, 40)

    assert waiting_since(store, "cpu") == {"0a1b": pytest.approx(time.time() - 40, abs=20)}
    assert waiting_since(store, "gpu") == {}

    dequeue(store, "cpu", "lab", "iris", "0a1b")
    assert waiting_since(store, "cpu") == {}


def test_a_run_expires_in_the_queue(store: Store, tmp_path: Path):
    enqueue(store, "cpu", "lab", "iris", "0a1b")
    age(tmp_path, EXPIRY_SECONDS + 5)

    assert waiting_since(store, "cpu") == {}
