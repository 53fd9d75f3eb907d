"""Locks of a model's publisher: a file lock in a folder, a renewed lease in S3."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dmls_core.errors import ConflictError, ObjectMissingError, ServingError, StoreError
from dmls_core.store import Store

LEASE_SECONDS = 30.0
"""Duration of a lease that is not renewed; a killed publisher keeps others out for this long."""

RENEW_SECONDS = 5.0
_PAUSE_SECONDS = 0.2


class BusyError(ServingError):
    """Another publisher is at work on the model."""


class LostError(ServingError):
    """A publisher has lost its lease."""


@contextmanager
def file_lock(path: Path, model: str, timeout: float) -> Iterator[None]:
    """Hold a file's lock, which ends with the process; BusyError after ``timeout`` seconds."""
    with path.open("a+") as file:
        deadline = time.monotonic() + timeout
        while not _try_lock(file.fileno()):
            if time.monotonic() > deadline:
                file.seek(0)
                raise _held(model, file.read().strip())
            time.sleep(_PAUSE_SECONDS / 4)
        file.truncate(0)
        file.write(_me())
        file.flush()
        yield


@contextmanager
def lease(store: Store, key: str, model: str, timeout: float) -> Iterator[PublisherLease]:
    """Hold a lease: an object that only one writer can create, or take over once it has expired.

    Another publisher that holds it for ``timeout`` seconds raises BusyError.
    """
    held = PublisherLease(store, key)
    deadline = time.monotonic() + timeout
    while holder := held.take():
        if time.monotonic() > deadline:
            raise _held(model, holder)
        time.sleep(_PAUSE_SECONDS)
    ended = threading.Event()
    renewing = threading.Thread(target=held.keep, args=[ended], daemon=True)
    renewing.start()
    try:
        yield held
    finally:
        ended.set()
        renewing.join()
        held.leave()


class PublisherLease:
    """A publisher's lease: an object with the time at which it expires."""

    def __init__(self, store: Store, key: str) -> None:
        self._store, self._key, self._id = store, key, uuid.uuid4().hex
        self._etag = ""
        self._taken = False
        self._renewed = 0.0

    def check(self, model: str) -> None:
        """Raise LostError if another publisher took the lease, or it expired without renewal."""
        if self._taken or time.monotonic() > self._renewed + LEASE_SECONDS:
            why = "another publisher has taken it" if self._taken else "the repository did not answer in time"
            raise LostError(
                f"the lease on {model} was lost ({why}); nothing more is changed: see with `dmls doctor` "
                "which version is served, and deploy again if it is not the champion"
            )

    def take(self) -> str:
        """Take the lease and return an empty text, or return its holder."""
        before = time.monotonic()
        try:
            self._etag = self._store.create(self._key, self._content()).etag
            self._renewed = before
        except ConflictError:
            return self._take_over()
        return ""

    def _take_over(self) -> str:
        try:
            data, info = self._store.read(self._key)
            record = json.loads(data)
            if time.time() < record["until"]:
                return str(record["holder"])
            before = time.monotonic()
            self._etag = self._store.replace(self._key, self._content(), info.etag).etag
            self._renewed = before
        except (ConflictError, ObjectMissingError):
            return "another one"  # another publisher was faster, or has just left
        return ""

    def keep(self, ended: threading.Event) -> None:
        """Renew the lease until it is left or lost."""
        while not ended.wait(RENEW_SECONDS):
            before = time.monotonic()
            try:
                self._etag = self._store.replace(self._key, self._content(), self._etag).etag
                self._renewed = before
            except ConflictError:
                self._taken = not self._is_ours()
                if self._taken:
                    return
            except StoreError:
                continue  # the next round tries again, well before it expires

    def _is_ours(self) -> bool:
        """Return whether the lease is ours under another ETag: the answer to a renewal was lost."""
        try:
            data, info = self._store.read(self._key)
        except StoreError:
            return False
        if json.loads(data)["id"] != self._id:
            return False
        self._etag = info.etag
        return True

    def leave(self) -> None:
        """Free the lease at once; if the store fails, it expires."""
        with suppress(StoreError):
            self._store.replace(self._key, self._content(seconds=0.0), self._etag)

    def _content(self, seconds: float = LEASE_SECONDS) -> bytes:
        content = {"schema": 1, "id": self._id, "holder": _me(), "until": time.time() + seconds}
        return json.dumps(content).encode()


def _me() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


def _held(model: str, holder: str) -> BusyError:
    return BusyError(
        f"{model} is being published by another publisher ({holder or 'unknown'}): try again when it is done"
    )


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
