"""Hashes of data that an earlier trainer has read: when they are used, and when a file is hashed again."""

from __future__ import annotations

import hashlib
import os
import time

import pytest

from dmls_core.errors import DataError
from dmls_core.store import open_store
from dmls_core.training import known_hashes
from dmls_core.training.known_hashes import KnownHashes
from dmls_core.training.request import fetch_data

OLD, NEW = b"x,y\n1,2\n", b"x,y\n1,3\n"


@pytest.fixture
def hashed(monkeypatch):
    """The files that were read for their hash."""
    found, real = [], known_hashes._hash
    monkeypatch.setattr(known_hashes, "_hash", lambda path: found.append(path.name) or real(path))
    return found


@pytest.fixture
def hashes(tmp_path):
    return KnownHashes(tmp_path / "cache" / "shop")


@pytest.fixture
def settled(tmp_path, monkeypatch):
    """A local file that was written a while ago."""
    path = tmp_path / "a.csv"
    path.write_bytes(OLD)
    now = time.time()
    monkeypatch.setattr(known_hashes.time, "time", lambda: now + 60)
    return path


def sha256_of(content):
    return hashlib.sha256(content).hexdigest()


def test_a_stored_file_is_hashed_once_until_its_etag_changes(tmp_path, hashes, hashed):
    store = open_store(url := f"file://{tmp_path / 'store'}")
    etag = store.put("a.csv", OLD).etag

    for attempt in ("one", "two"):
        (file,) = fetch_data([f"{url}/a.csv"], [etag], tmp_path / attempt, hashes)
        assert (file.sha256, file.path.read_bytes()) == (sha256_of(OLD), OLD)
    assert hashed == ["a.csv"]

    store.put("a.csv", NEW)
    with pytest.raises(DataError, match="has changed since"):
        fetch_data([f"{url}/a.csv"], [etag], tmp_path / "three", hashes)
    (file,) = fetch_data([f"{url}/a.csv"], (), tmp_path / "four", hashes)
    assert file.sha256 == sha256_of(NEW)


def test_a_local_file_is_hashed_once_until_it_changes(settled, hashes, hashed):
    assert {hashes.sha256(str(settled), settled, "") for _ in range(3)} == {sha256_of(OLD)}
    assert hashed == ["a.csv"]

    before = settled.stat()
    time.sleep(0.02)  # the clock of a file system ticks every 10 ms at most
    settled.write_bytes(NEW)
    os.utime(settled, ns=(before.st_atime_ns, before.st_mtime_ns))  # a swap that hides itself
    assert hashes.sha256(str(settled), settled, "") == sha256_of(NEW)


def test_a_file_that_was_just_written_is_not_trusted(tmp_path, hashes, hashed):
    path = tmp_path / "a.csv"
    path.write_bytes(OLD)

    assert [hashes.sha256(str(path), path, "") for _ in range(2)] == [sha256_of(OLD)] * 2
    assert hashed == ["a.csv"] * 2


@pytest.mark.parametrize("damage", [b"", b"\xff", b"no hash", bytes(64) + b" " + bytes(64)])
def test_a_damaged_record_counts_as_none(settled, hashes, hashed, tmp_path, damage):
    hashes.sha256(str(settled), settled, "")
    (record,) = (tmp_path / "cache" / "shop" / "hashes").iterdir()
    whole = record.read_bytes()
    record.write_bytes(damage)

    assert hashes.sha256(str(settled), settled, "") == sha256_of(OLD)
    assert hashed == ["a.csv"] * 2
    assert record.read_bytes() == whole


def test_a_record_of_another_hash_is_refused(settled, hashes, tmp_path):
    hashes.sha256(str(settled), settled, "")
    (record,) = (tmp_path / "cache" / "shop" / "hashes").iterdir()
    record.write_text(record.read_text().replace(sha256_of(OLD), sha256_of(NEW)))

    assert hashes.sha256(str(settled), settled, "") == sha256_of(OLD)


def test_teams_keep_their_own(settled, hashed, tmp_path, monkeypatch):
    monkeypatch.setenv("DMLS_CACHE_FOLDER", str(tmp_path / "cache"))
    for team in ("shop", "bank"):
        KnownHashes.of(team).sha256(str(settled), settled, "")
        assert (tmp_path / "cache" / team).stat().st_mode & 0o77 == 0
    assert hashed == ["a.csv"] * 2


def test_without_a_cache_or_with_a_broken_one_every_run_hashes(settled, hashed, tmp_path, monkeypatch):
    monkeypatch.setenv("DMLS_CACHE_FOLDER", "")
    broken = tmp_path / "file"
    broken.write_bytes(b"")
    for hashes in (KnownHashes.of("shop"), KnownHashes(broken)):
        assert {hashes.sha256(str(settled), settled, "") for _ in range(2)} == {sha256_of(OLD)}
    assert len(hashed) == 4
