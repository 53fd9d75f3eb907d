"""The inference log within Triton: a sample of the rows that were asked, with the answers, in files.

A copy of this file lies beside ``model.py`` in every version of a table endpoint. It imports nothing else of
DMLS. Requests hand rows over and go on; a thread writes them. What does not fit is dropped and counted: no
request waits, and none fails.

A file is JSON Lines: one object for each request of which rows were drawn. It is called
``<UTC time>-<random>-<rows>.jsonl`` once it is whole, ``.part`` before, and lies in a folder of the model.
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
"""Rows of one request that are logged at most."""

WAITING_ROWS = 5_000
"""Rows in memory that are not written yet; further ones are dropped."""

TEXT = 500
"""Characters of a text that are logged."""

FILE_BYTES = 4 << 20
FILE_SECONDS = 300.0
"""A file is whole when it has so many bytes, or is so old."""

FOLDER_BYTES = 64 << 20
"""Bytes of a model's whole files; the oldest ones go when nobody fetches them."""

OWN_REQUESTS = "dmls."
"""How the ids of DMLS's own requests begin: golden rows are no data of users."""


class RequestLog:
    """Samples rows and writes them from a thread of its own."""

    def __init__(self, folder: Path, share: float, leave_out: list[str]) -> None:
        """Start the thread; the folder is made when there is something to write.

        Args:
            folder: the model's own.
            share: probability that a row is logged.
            leave_out: columns that are never written.
        """
        self._folder, self._share, self._leave_out = folder, share, frozenset(leave_out)
        self._random = np.random.default_rng()
        self._waiting: deque[dict[str, Any]] = deque()
        self._rows = 0
        self._ended = False
        self._changed = threading.Condition()
        self.written = 0
        """Rows written so far."""
        self.dropped = 0
        """Rows that were drawn and not kept."""
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
    ) -> None:
        """Draw rows of an answered request and hand them to the thread.

        Args:
            request_id: as the client gave it; an id is made up where it gave none.
            version: the version that answered.
            table: the columns, each of shape (n_rows,); texts are bytes.
            labels: of the outputs; None for a regression.
            outputs: shape (n_rows, n_outputs).
            shadow: version, labels and outputs of a challenger that was asked as well.
        """
        drawn = np.flatnonzero(self._random.random(len(outputs)) < self._share)
        if not len(drawn) or request_id.startswith(OWN_REQUESTS):
            return
        if len(drawn) > REQUEST_ROWS:
            drawn = np.sort(self._random.choice(drawn, REQUEST_ROWS, replace=False))
        entry = {
            "id": request_id or uuid.uuid4().hex,
            "time": time.time(),
            "version": version,
            "rows": drawn,
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
        """Write what waits, and end."""
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._thread.join(timeout=10.0)

    def _write(self) -> None:
        """Write one file after the other, until the end."""
        while (entry := self._next(None)) is not None:
            self._write_file(entry)

    def _write_file(self, entry: dict[str, Any] | None) -> None:
        """Write a file that begins with ``entry``; what cannot be written is dropped."""
        end = time.monotonic() + FILE_SECONDS
        started = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        stem = f"{started}-{uuid.uuid4().hex[:12]}"
        part = self._folder / f"{stem}.part"
        written = size = 0
        try:
            if not self._folder.is_dir():
                self._folder.mkdir(parents=True)
                self._folder.chmod(0o770)  # the group may fetch the files; nobody else may read them
            with part.open("xb") as file:
                while entry is not None:
                    line = _line(entry)
                    file.write(line)
                    written, size = written + len(entry["rows"]), size + len(line)
                    entry = self._next(end) if size < FILE_BYTES else None
            part.replace(self._folder / f"{stem}-{written}.jsonl")
            self.written += written
            self._make_room()
        except Exception:  # noqa: BLE001  the next file may do
            self.dropped += written + (len(entry["rows"]) if entry else 0)
            with suppress(OSError):
                part.unlink(missing_ok=True)

    def _next(self, end: float | None) -> dict[str, Any] | None:
        """Return what waits longest; None where nothing comes until ``end``, or ever."""
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
        """Remove the oldest files where they are more than a folder may hold."""
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
    """Return an entry as a line of JSON, in which NaN stands for a missing number."""
    plain = {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in entry.items()}
    plain["columns"] = {
        name: [_plain(value) for value in values.tolist()] for name, values in entry["columns"].items()
    }
    return json.dumps(plain).encode() + b"\n"


def _plain(value: bytes | float) -> str | float:
    """Return a text, cut where it is long, or a number."""
    return value.decode(errors="replace")[:TEXT] if isinstance(value, bytes) else value
