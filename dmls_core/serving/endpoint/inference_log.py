"""The inference log inside Triton: a sample of the requested rows, with the answers, in files.

Every version folder of a table endpoint holds a copy of this file. It imports nothing else of DMLS. A thread
writes the rows, so no request waits for it or fails because of it; rows beyond its limits are discarded and
counted.

A file is JSON Lines: one object for each request with sampled rows. A finished file is called
``<UTC time>-<random>-<rows>.jsonl``, an unfinished one ``.part``; each model has a folder.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

REQUEST_ROWS = 100
"""Maximum number of logged rows of a request."""

WAITING_ROWS = 5_000
"""Maximum number of rows in memory that are not written yet; further rows are discarded."""

TEXT = 500
"""Maximum length of a logged text, in characters."""

FILE_BYTES = 4 << 20
FILE_SECONDS = 300.0
"""A file is finished at this size or age."""

FOLDER_BYTES = 64 << 20
"""Maximum size of a model's finished files; beyond it the oldest are removed."""

_OWN_REQUESTS = "dmls."
"""Prefix of the ids of DMLS's own requests: golden rows are not user data."""


class RequestLog:
    """Samples rows and writes them in its own thread."""

    def __init__(self, folder: Path, share: float, leave_out: list[str]) -> None:
        """Start the thread; the model's folder is created with the first file.

        ``share`` is the probability that a row is logged; columns in ``leave_out`` are never written.
        """
        self._folder, self._share, self._leave_out = folder, share, frozenset(leave_out)
        self._random = np.random.default_rng()
        self._waiting: deque[dict[str, Any]] = deque()
        self._rows = 0
        self._ended = False
        self._changed = threading.Condition()
        self.written = 0
        self.dropped = 0
        """Sampled rows that were discarded."""
        self._thread = threading.Thread(target=self._write, name="inference log", daemon=True)
        self._thread.start()

    def add(
        self,
        request_id: str,
        version: int,
        table: dict[str, Any],
        labels: list[str] | None,
        outputs: Any,  # noqa: ANN401  the server's Python has no types of NumPy's
        shadow: tuple[int, list[str] | None, Any] | None = None,
        first_row: int = 0,
    ) -> None:
        """Sample rows of an answered request and pass them to the thread.

        ``request_id`` is the client's; without one, an id is generated. ``table``: columns of shape
        (n_rows,), texts as bytes. ``outputs``: shape (n_rows, n_outputs), with ``labels`` or None for a
        regression. ``shadow``: version, labels and outputs of a shadow challenger. ``first_row``: position
        of the first row, if the client has split its rows over several requests with the same id.
        """
        drawn = np.flatnonzero(self._random.random(len(outputs)) < self._share)
        if not len(drawn) or request_id.startswith(_OWN_REQUESTS):
            return
        if len(drawn) > REQUEST_ROWS:
            drawn = np.sort(self._random.choice(drawn, REQUEST_ROWS, replace=False))
        entry = {
            "id": request_id or uuid.uuid4().hex,
            "time": time.time(),
            "version": version,
            "rows": drawn + first_row,
            # Copies: the tensors' memory is the server's again once the request is answered.
            "columns": {k: v[drawn] for k, v in table.items() if k not in self._leave_out},
            "labels": labels,
            "outputs": outputs[drawn],
        }
        if shadow is not None:
            number, texts, others = shadow
            entry |= {"shadow_version": number, "shadow_labels": texts, "shadow_outputs": others[drawn]}
        with self._changed:
            if self._ended or self._rows + len(drawn) > WAITING_ROWS:
                self.dropped += len(drawn)
                return
            self._rows += len(drawn)
            self._waiting.append(entry)
            self._changed.notify()

    def close(self) -> None:
        """Write the remaining rows, and end the thread."""
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._thread.join(timeout=10.0)

    def _write(self) -> None:
        while (entry := self._next(None)) is not None:
            self._write_file(entry)

    def _write_file(self, entry: dict[str, Any] | None) -> None:
        """Write a file that begins with ``entry``; if it fails, its rows are discarded."""
        end = time.monotonic() + FILE_SECONDS
        started = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        stem = f"{started}-{uuid.uuid4().hex[:12]}"
        part = self._folder / f"{stem}.part"
        written = size = 0
        try:
            if not self._folder.is_dir():
                self._folder.mkdir(parents=True)
                self._folder.chmod(0o770)  # the group may fetch the files; others may not read them
            with part.open("xb") as file:
                while entry is not None:
                    line = _line(entry)
                    file.write(line)
                    written, size = written + len(entry["rows"]), size + len(line)
                    entry = self._next(end) if size < FILE_BYTES else None
            part.replace(self._folder / f"{stem}-{written}.jsonl")
            self.written += written
            self._make_room()
        except Exception:  # noqa: BLE001  the next file may succeed
            self.dropped += written + (len(entry["rows"]) if entry else 0)
            with suppress(OSError):
                part.unlink(missing_ok=True)

    def _next(self, end: float | None) -> dict[str, Any] | None:
        """Return the oldest entry; ``None`` if none comes until ``end``, or the log is closed."""
        with self._changed:
            while not self._waiting and not self._ended:
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    return None
                self._changed.wait(left)
            if not self._waiting:
                return None
            entry = self._waiting.popleft()
            self._rows -= len(entry["rows"])
            return entry

    def _make_room(self) -> None:
        """Remove the oldest files beyond the folder's maximum size."""
        files = sorted(self._folder.glob("*.jsonl"))
        sizes = [file.stat().st_size for file in files]
        excess = sum(sizes) - FOLDER_BYTES
        for file, size in zip(files, sizes, strict=True):
            if excess <= 0:
                break
            file.unlink(missing_ok=True)
            self.dropped += int(file.stem.rpartition("-")[2])
            excess -= size


def _line(entry: dict[str, Any]) -> bytes:
    """Return an entry as a line of JSON; NaN is a missing number."""
    plain = {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in entry.items()}
    plain["columns"] = {
        name: [_plain(value) for value in values.tolist()] for name, values in entry["columns"].items()
    }
    return json.dumps(plain).encode() + b"\n"


def _plain(value: bytes | float) -> str | float:
    """Return a number, or a text of limited length."""
    return value.decode(errors="replace")[:TEXT] if isinstance(value, bytes) else value
