"""A watch follows the changes that a file names, and lists everything while it may miss some."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dmls_core.store import ObjectInfo, s3_changes
from dmls_core.store.s3_changes import MANY, ChangeFile, watch_changes
from dmls_core.testing.stores import run_coroutine

NEVER = 3600.0


class Bucket:
    """Objects, and which prefixes were listed."""

    def __init__(self) -> None:
        self.keys = {"in/a/spec.toml", "in/b/spec.toml"}
        self.listed: list[str] = []

    async def fetch(self, prefix: str) -> Sequence[ObjectInfo]:
        self.listed.append(prefix)
        moment = datetime(2026, 1, 1, tzinfo=UTC)
        return [ObjectInfo(key, 1, key, moment) for key in sorted(self.keys) if key.startswith(prefix)]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(s3_changes, "LOOK_SECONDS", 0.01)
    path = tmp_path / "changes"
    path.write_text("one\n")
    return path


def name(file: Path, *folders: str) -> None:
    with file.open("a") as lines:
        lines.writelines(json.dumps(folder) + "\n" for folder in folders)


def listings(bucket: Bucket, file: Path, poll_seconds: float, *changes: object) -> list[list[str]]:
    """Return the keys of each listing; the next of ``changes``, which are callables, follows each."""

    async def play() -> list[list[str]]:
        found = []
        steps = iter(changes)
        async with aclosing(watch_changes(ChangeFile(file), bucket.fetch, "in/", poll_seconds)) as watched:
            async for listing in watched:
                found.append(sorted(info.key for info in listing))
                step = next(steps, None)
                if step is None:
                    return found
                assert callable(step)
                step()
        return found

    return run_coroutine(asyncio.wait_for(play(), 30))


def test_only_changed_folders_are_listed(file: Path) -> None:
    bucket = Bucket()

    def add() -> None:
        bucket.keys.add("in/b/data.csv")
        name(file, "in/b/", "elsewhere/c/")

    def delete() -> None:
        bucket.keys.remove("in/a/spec.toml")
        name(file, "in/a/")

    found = listings(bucket, file, NEVER, add, delete)
    everything = ["in/a/spec.toml", "in/b/spec.toml"]
    assert found == [everything, sorted([*everything, "in/b/data.csv"]), ["in/b/data.csv", "in/b/spec.toml"]]
    assert bucket.listed == ["in/", "in/b/", "in/a/"]


def replace(file: Path) -> None:
    file.write_text("two\n")


def age(file: Path) -> None:
    long_ago = time.time() - 2 * s3_changes.SILENCE
    os.utime(file, (long_ago, long_ago))


def name_many(file: Path) -> None:
    name(file, *(f"in/{number}/" for number in range(MANY + 1)))


@pytest.mark.parametrize("fault", [Path.unlink, replace, age, name_many, lambda file: name(file, "in/a/")])
def test_everything_is_listed_when_changes_may_be_missed(file: Path, fault: object) -> None:
    bucket = Bucket()
    assert callable(fault)

    def change() -> None:
        bucket.keys.add("in/a/data.csv")
        fault(file)

    assert listings(bucket, file, 0.05, change)[-1] == ["in/a/data.csv", "in/a/spec.toml", "in/b/spec.toml"]


def test_everything_is_listed_now_and_then(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_changes, "WHOLE_SECONDS", 0.1)
    bucket = Bucket()
    assert len(listings(bucket, file, NEVER, lambda: bucket.keys.clear())) == 2
    assert set(bucket.listed) == {"in/"}


def test_a_line_that_is_not_complete_is_read_later(file: Path) -> None:
    changes = ChangeFile(file)
    assert changes.read() is None
    with file.open("a") as lines:
        lines.write('"in/a/"\n"in')
        lines.flush()
        assert changes.read() == {"in/a/"}
        lines.write('/b/"\n')
    assert changes.read() == {"in/b/"}
    assert changes.read() == set()
