"""Runs that wait for their first trainer."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from dmls_core.store import Store, layout, open_store
from dmls_core.store.line import FORGOTTEN, PATIENCE, leave_line, somebody_waits, stand_in_line


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path))


def line(tmp_path: Path, engine: str = "cpu") -> Store:
    return open_store(str(tmp_path / layout.line_folder(engine)))


def age(tmp_path: Path, seconds: float) -> None:
    for path in (tmp_path / "waiting").rglob("*.json"):
        then = time.time() - seconds
        os.utime(path, (then, then))


def test_a_run_waits_from_its_plan_to_its_leaders_start(store: Store, tmp_path: Path):
    assert not somebody_waits(line(tmp_path))
    stand_in_line(store, "cpu", "lab", "iris", "0a1b")
    assert not somebody_waits(line(tmp_path))  # most start at once

    age(tmp_path, PATIENCE + 5)
    assert somebody_waits(line(tmp_path))
    assert not somebody_waits(line(tmp_path, "gpu"))

    leave_line(store, "cpu", "lab", "iris", "0a1b")
    assert not somebody_waits(line(tmp_path))


def test_a_run_that_never_came_is_forgotten(store: Store, tmp_path: Path):
    stand_in_line(store, "cpu", "lab", "iris", "0a1b")
    age(tmp_path, FORGOTTEN + 5)

    assert not somebody_waits(line(tmp_path))
