"""Tests that every store must pass."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from dmls_core.errors import ConflictError, ObjectMissingError, StoreError
from dmls_core.store import ObjectInfo, Store

T = TypeVar("T")


def run_coroutine(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a thread of its own, and return its result.

    The thread of the tests may have a running event loop: Playwright keeps one while its browser is open.
    """
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


def race(count: int, work: Callable[[int], T]) -> list[T | Exception]:
    """Call ``work(0)`` to ``work(count - 1)`` concurrently; return results and exceptions."""
    barrier = threading.Barrier(count)

    def one(number: int) -> T | Exception:
        barrier.wait()
        try:
            return work(number)
        except Exception as error:  # noqa: BLE001
            return error

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(one, range(count)))


def _create(store: Store, key: str, number: int) -> ObjectInfo:
    return store.create(key, b"%d" % number)


def _replace(store: Store, key: str, etag: str, number: int) -> ObjectInfo:
    return store.replace(key, b"%d" % number, etag)


class StoreSuite:
    """Tests of a ``Store``; a subclass defines ``store``, an empty one, and may lower the numbers.

    Examples:
        pytest runs every test; here, one is called by hand:

        >>> import pytest
        >>> from dmls_core.store import open_store
        >>> from dmls_core.testing import StoreSuite
        >>> class TestFolders(StoreSuite):
        ...     KEYS = 20  # objects in a listing: more than the service lists at a time
        ...     @pytest.fixture
        ...     def store(self, tmp_path):
        ...         return open_store(str(tmp_path))
        >>> TestFolders().test_put_then_read(open_store("objects"))
    """

    LARGE = 3 << 20
    """Bytes of the large object."""

    RACERS = 8
    """Concurrent writers of one object."""

    ROUNDS = 10
    """Repetitions of each race."""

    KEYS = 1050
    """Objects in a listing: more than the service lists at a time."""

    def test_put_then_read(self, store: Store) -> None:
        before = datetime.now(UTC) - timedelta(seconds=5)
        written = store.put("a/b.json", b'{"x": 1}')
        data, info = store.read("a/b.json")
        assert data == store.get("a/b.json") == b'{"x": 1}'
        assert (info.key, info.size, info.etag) == ("a/b.json", 8, written.etag)
        assert info.modified.tzinfo is not None
        assert before < info.modified < datetime.now(UTC) + timedelta(seconds=5)
        assert store.head("a/b.json") == info

    def test_etag_follows_the_content(self, store: Store) -> None:
        first = store.put("k", b"one").etag
        second = store.put("k", b"two").etag
        again = store.put("k", b"one").etag
        assert first != second
        assert first == again
        assert '"' not in first

    def test_an_empty_object(self, store: Store) -> None:
        store.put("empty", b"")
        assert store.get("empty") == b""
        assert store.read("empty", limit=10)[0] == b""
        with store.open("empty") as stream:
            assert stream.read() == b""

    def test_what_is_missing(self, store: Store, tmp_path: Path) -> None:
        store.put("folder/x", b"1")
        for key in ("nothing", "folder", "folder/x/y"):
            assert store.head(key) is None
            with pytest.raises(ObjectMissingError, match=key):
                store.get(key)
            with pytest.raises(ObjectMissingError):
                store.open(key)
            with pytest.raises(ObjectMissingError):
                store.download(key, tmp_path / "x")
            assert not (tmp_path / "x").exists()
        store.delete("nothing")

    def test_reading_the_first_bytes(self, store: Store) -> None:
        store.put("k", b"0123456789")
        data, info = store.read("k", limit=4)
        assert (data, info.size) == (b"0123", 10)
        assert store.read("k", limit=100)[0] == b"0123456789"
        assert store.read("k", limit=0)[0] == b""
        assert store.read("k", start=3, limit=4) == (b"3456", info)
        assert store.read("k", start=8)[0] == b"89"

    def test_streaming(self, store: Store) -> None:
        content = os.urandom(self.LARGE)
        store.put("big", content)
        with store.open("big") as stream:
            assert stream.read(5) == content[:5]
            assert stream.read() == content[5:]
            assert stream.read() == b""
        with store.open("big") as stream:
            stream.read(1)
        store.put("lines", b"a,b\n1,2\n")
        with store.open("lines") as stream:
            assert [line.rstrip() for line in io.TextIOWrapper(stream)] == ["a,b", "1,2"]

    def test_streaming_a_pinned_content(self, store: Store) -> None:
        old = store.put("k", b"old").etag
        with store.open("k", etag=old) as stream:
            assert stream.read() == b"old"
        store.put("k", b"new")
        with pytest.raises(ConflictError, match="k"):
            store.open("k", etag=old)

    def test_create_once(self, store: Store) -> None:
        first = store.create("k", b"one")
        with pytest.raises(ConflictError, match="exists already"):
            store.create("k", b"two")
        data, info = store.read("k")
        assert (data, info.etag) == (b"one", first.etag)

    def test_replace_what_was_read(self, store: Store) -> None:
        first = store.put("k", b"one")
        second = store.replace("k", b"two", first.etag)
        with pytest.raises(ConflictError, match="another writer"):
            store.replace("k", b"three", first.etag)
        assert store.get("k") == b"two"
        store.delete("k")
        with pytest.raises(ConflictError, match="another writer"):
            store.replace("k", b"four", second.etag)
        assert store.head("k") is None

    def test_one_of_many_creates_wins(self, store: Store) -> None:
        for turn in range(self.ROUNDS):
            outcomes = race(self.RACERS, partial(_create, store, f"race/{turn}"))
            winners = [n for n, outcome in enumerate(outcomes) if isinstance(outcome, ObjectInfo)]
            assert len(winners) == 1, f"{winners} all created race/{turn}"
            assert all(isinstance(o, ObjectInfo | ConflictError) for o in outcomes), outcomes
            assert store.get(f"race/{turn}") == b"%d" % winners[0]

    def test_one_of_many_replaces_wins(self, store: Store) -> None:
        for turn in range(self.ROUNDS):
            start = store.put("k", b"start %d" % turn)
            outcomes = race(self.RACERS, partial(_replace, store, "k", start.etag))
            winners = [n for n, outcome in enumerate(outcomes) if isinstance(outcome, ObjectInfo)]
            assert len(winners) == 1, f"{winners} all replaced one content"
            assert all(isinstance(o, ObjectInfo | ConflictError) for o in outcomes), outcomes
            assert store.get("k") == b"%d" % winners[0]

    def test_counting_by_replace_loses_no_step(self, store: Store) -> None:
        store.put("counter", b"0")

        def count(_: int) -> int:
            return sum(step() for _ in range(5))

        def step() -> int:
            while True:
                data, info = store.read("counter")
                try:
                    store.replace("counter", b"%d" % (int(data) + 1), info.etag)
                except ConflictError:
                    continue
                return 1

        assert race(4, count) == [5] * 4
        assert store.get("counter") == b"20"

    def test_readers_see_whole_objects_while_it_is_rewritten(self, store: Store) -> None:
        contents = [bytes([65 + n]) * 200_000 for n in range(4)]
        store.put("k", contents[0])

        def work(n: int) -> bool:
            if n == 0:
                for content in contents * 3:
                    store.put("k", content)
                return True
            return all(store.get("k") in contents for _ in range(8))

        assert race(4, work) == [True] * 4

    def test_upload_and_download(self, store: Store, tmp_path: Path) -> None:
        content = os.urandom(self.LARGE)
        source, target = tmp_path / "source.bin", tmp_path / "deep" / "target.bin"
        source.write_bytes(content)
        written = store.upload("big/file.bin", source)
        assert (written.key, written.size) == ("big/file.bin", len(content))
        read = store.download("big/file.bin", target, etag=written.etag)
        assert read.etag == written.etag
        assert hashlib.sha256(target.read_bytes()).digest() == hashlib.sha256(content).digest()
        assert [path.name for path in target.parent.iterdir()] == ["target.bin"]

    def test_download_of_a_changed_object_leaves_the_old_file(self, store: Store, tmp_path: Path) -> None:
        old = store.put("k", b"old")
        store.put("k", b"new")
        target = tmp_path / "target" / "file"
        target.parent.mkdir()
        target.write_bytes(b"before")
        with pytest.raises(ConflictError):
            store.download("k", target, etag=old.etag)
        assert target.read_bytes() == b"before"
        assert list(target.parent.iterdir()) == [target]

    def test_listing(self, store: Store) -> None:
        keys = ["a-b", "a/1", "a/2/x", "ab/c"]
        keys += ["b/ü.csv", "b/with space.csv", "b/100%2e.csv", "b/a+b&c=d?e#f.csv", 'b/it\'s "q".csv']
        etags = {key: store.put(key, key.encode()).etag for key in keys}
        listed = list(store.list(""))
        assert sorted(info.key for info in listed) == sorted(keys)
        assert {info.key: info.etag for info in listed} == etags
        assert {info.key: info.size for info in listed} == {key: len(key.encode()) for key in keys}
        for prefix in ("a/", "a", "a/2/", "a/2/x", "b/", "b/w", "nothing/", "a/1/"):
            listed_keys = sorted(info.key for info in store.list(prefix))
            assert listed_keys == sorted(key for key in keys if key.startswith(prefix)), prefix
        assert all(store.get(key) == key.encode() for key in keys)

    def test_listing_more_than_a_page(self, store: Store) -> None:
        keys = [f"many/{number:04d}" for number in range(self.KEYS)]
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda key: store.put(key, b"x"), keys))
        assert sorted(info.key for info in store.list("many/")) == keys

    def test_watching_a_prefix(self, store: Store) -> None:
        async def watch() -> list[list[str]]:
            listed: list[list[str]] = []
            async with aclosing(store.watch("in/", poll_seconds=0.05)) as listings:
                async for listing in listings:
                    listed.append(sorted(info.key for info in listing))
                    if len(listed) == 1:
                        await asyncio.to_thread(store.put, "other/x", b"1")
                        await asyncio.to_thread(store.put, "in/a", b"1")
                    elif len(listed) == 2:
                        await asyncio.to_thread(store.delete, "in/a")
                    else:
                        break
            return listed

        assert run_coroutine(asyncio.wait_for(watch(), 60)) == [[], ["in/a"], []]

    def test_listing_without_blocking(self, store: Store) -> None:
        store.put("a/b", b"1")
        assert list(run_coroutine(store.list_async("a/"))) == list(store.list("a/"))

    def test_trainers_get_variables_of_text(self, store: Store) -> None:
        assert all(isinstance(text, str) for pair in store.trainer_environment().items() for text in pair)

    def test_delete(self, store: Store) -> None:
        store.put("a/b", b"1")
        store.delete("a/b")
        assert store.head("a/b") is None
        assert list(store.list("")) == []

    def test_erase(self, store: Store) -> None:
        store.erase("a/b")  # nothing to erase
        for key, content in (("a/b", b"1"), ("a/b", b"2"), ("a/bc", b"3")):
            store.put(key, content)
        store.erase("a/b")
        assert [info.key for info in store.list("")] == ["a/bc"]

    @pytest.mark.parametrize(
        "key",
        [
            "",
            "/",
            "/a",
            "a/",
            "a//b",
            ".",
            "..",
            "../a",
            "a/../../b",
            "a/./b",
            "a\\b",
            "a\0b",
            "a\nb",
            "\ud800",
            "k" * 1025,
        ],
    )
    def test_hostile_keys(self, store: Store, key: str, tmp_path: Path) -> None:
        for call in (
            lambda: store.put(key, b"x"),
            lambda: store.create(key, b"x"),
            lambda: store.get(key),
            lambda: store.open(key),
            lambda: store.head(key),
            lambda: store.delete(key),
            lambda: store.download(key, tmp_path / "x"),
        ):
            with pytest.raises(StoreError, match="cannot be a key"):
                call()
        assert list(store.list("")) == []
