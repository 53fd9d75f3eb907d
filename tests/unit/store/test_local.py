from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dmls_core.errors import ConflictError, ObjectMissingError, StoreError
from dmls_core.store import Store, open_store
from dmls_core.store.local import LocalStore
from dmls_core.testing.stores import StoreSuite


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


class TestLocalStore(StoreSuite):
    @pytest.fixture
    def store(self, store: LocalStore) -> Store:
        return store


def test_links_are_neither_listed_nor_followed(store: LocalStore, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    store.put("real/file", b"x")
    (store.root / "real" / "link").symlink_to(outside / "secret")
    (store.root / "folder").symlink_to(outside)
    assert [info.key for info in store.list("")] == ["real/file"]
    assert list(store.list("folder/")) == []
    assert store.head("real/link") is None
    with pytest.raises(ObjectMissingError):
        store.get("real/link")
    for call in (
        lambda: store.get("folder/secret"),
        lambda: store.put("folder/new", b"x"),
        lambda: store.delete("folder/secret"),
    ):
        with pytest.raises(StoreError, match="symbolic link"):
            call()
    store.put("real/link", b"mine")
    assert (outside / "secret").read_bytes() == b"secret"
    assert [path.name for path in outside.iterdir()] == ["secret"]


def test_pipes_and_odd_names_do_not_hang_a_listing(store: LocalStore) -> None:
    store.put("a/file", b"x")
    os.mkfifo(store.root / "a" / "pipe")
    (Path(os.fsdecode(os.fsencode(store.root) + b"/a/\xff"))).write_bytes(b"x")
    (store.root / "a" / ".abc.dmls-tmp").write_bytes(b"half")
    assert [info.key for info in store.list("")] == ["a/file"]
    with pytest.raises(ObjectMissingError):
        store.get("a/pipe")
    with pytest.raises(StoreError, match="is reserved"):
        store.put("a/x.dmls-tmp", b"")


def test_a_write_deletes_abandoned_temporary_files(store: LocalStore) -> None:
    store.put("a/file", b"x")
    fresh, old = store.root / "a/.1.dmls-tmp", store.root / "a/.2.dmls-tmp"
    for path in (fresh, old):
        path.write_bytes(b"half")
    two_hours_ago = time.time() - 7200
    os.utime(old, (two_hours_ago, two_hours_ago))
    store.put("a/other", b"y")
    assert sorted(path.name for path in (store.root / "a").iterdir()) == [fresh.name, "file", "other"]


def test_listing_a_missing_folder(tmp_path: Path) -> None:
    assert list(open_store(str(tmp_path / "none")).list("")) == []


def test_unreadable_files_are_left_out_of_listings(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from dmls_core.store import local

    store.put("good", b"x")
    store.put("locked", b"x")
    real = local.open_regular

    def open_regular(path: Path) -> object:
        if path.name == "locked":
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(local, "open_regular", open_regular)
    assert [info.key for info in store.list("")] == ["good"]
    assert "locked: Permission denied" in caplog.text
    with pytest.raises(StoreError, match=r"read .*/locked: Permission denied; give this user the right"):
        store.get("locked")


def test_an_object_and_a_folder_with_the_same_name(store: LocalStore) -> None:
    store.put("a/b", b"x")
    with pytest.raises(StoreError, match="a folder and an object want the same name"):
        store.put("a", b"x")
    with pytest.raises(StoreError):
        store.put("a/b/c", b"x")
    assert [info.key for info in store.list("")] == ["a/b"]


def test_a_failed_write_leaves_the_old_content(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put("k", b"old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dmls_core.store.local.os.fsync", fail)
    with pytest.raises(StoreError, match="No space left on device; free some space"):
        store.put("k", b"new")
    monkeypatch.undo()
    assert store.get("k") == b"old"
    assert [path.name for path in store.root.iterdir()] == ["k"]


def test_only_hashes_of_settled_files_are_cached(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    from dmls_core.store import local

    hashed: list[str] = []
    real = local.file_sha256
    monkeypatch.setattr(local, "file_sha256", lambda stream: hashed.append(stream.name) or real(stream))
    store.put("k", b"one")
    path = store.root / "k"
    for _ in range(2):
        store.head("k")
    assert len(hashed) == 2  # too young
    monkeypatch.setattr(local, "SETTLED_SECONDS", -1.0)
    first = store.head("k")
    assert store.head("k") == first
    assert len(hashed) == 3
    path.write_bytes(b"two")
    os.utime(path, ns=(0, 10**18))
    second = store.head("k")
    assert first
    assert second
    assert second.etag != first.etag
    assert len(hashed) == 4


def test_conditional_writes_ignore_cached_hashes(store: LocalStore) -> None:
    old = store.put("k", b"one")
    facts = (store.root / "k").stat()
    stamp = (facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
    store._etags["k"] = (stamp, "f" * 32)
    assert store.replace("k", b"two", old.etag).size == 3


def test_processes_increment_a_counter_without_lost_updates(store: LocalStore) -> None:
    script = """
import sys
from dmls_core.errors import ConflictError
from dmls_core.store import open_store
store = open_store(sys.argv[1])
for _ in range(20):
    while True:
        data, info = store.read("counter")
        try:
            store.replace("counter", b"%d" % (int(data) + 1), info.etag)
            break
        except ConflictError:
            pass
"""
    store.put("counter", b"0")
    workers = [subprocess.Popen([sys.executable, "-c", script, str(store.root)]) for _ in range(3)]
    assert [worker.wait(60) for worker in workers] == [0, 0, 0]
    assert store.get("counter") == b"60"


def test_a_killed_writer_leaves_no_lock_and_no_object(store: LocalStore, tmp_path: Path) -> None:
    script = """
import sys
from pathlib import Path
from dmls_core.store import open_store
class Slow:
    def read(self, _):
        print("writing", flush=True)
        import time
        time.sleep(60)
store = open_store(sys.argv[1])
store._write("k", Slow())
"""
    worker = subprocess.Popen([sys.executable, "-c", script, str(store.root)], stdout=subprocess.PIPE)
    assert worker.stdout
    worker.stdout.readline()
    worker.kill()
    worker.wait()
    assert list(store.list("")) == []
    store.create("k", b"x")


def test_downloading_a_file_that_changes(store: LocalStore, tmp_path: Path) -> None:
    """The ETag that is compared is of the bytes that were delivered."""
    info = store.put("k", b"one")
    stream = store.open("k", etag=info.etag)
    (store.root / "k").write_bytes(b"two")  # in place, as no store would
    assert stream.read() == b"two"
    stream.close()
    with pytest.raises(ConflictError):
        store.download("k", tmp_path / "x", etag=info.etag)
