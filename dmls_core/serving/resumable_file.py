"""A text file that is written in parts, appears whole, and is gone on with after an interruption.

Beside ``target`` lie, while it is written, ``.<name>.partial`` with the parts that are done and
``.<name>.partial.json`` with what they were made of.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from dmls_core.errors import DataError, UserError, ValidationIssue


@dataclass(slots=True)
class Parts:
    """The parts that are there, and where to write the next one.

    Attributes:
        out: stands behind the last part that was finished.
        rows: rows in the finished parts.
    """

    out: IO[str]
    rows: int
    _state: Path | None = None
    _made_of: Mapping[str, Any] | None = None

    def finish(self, rows: int) -> None:
        """Keep what was written: ``rows`` rows more."""
        self.rows += rows
        if self._state is None:
            return
        self.out.flush()
        size = os.fstat(self.out.fileno()).st_size
        new = self._state.with_name(f"{self._state.name}.new")
        new.write_text(
            json.dumps({"schema": 1, "made_of": self._made_of, "rows": self.rows, "bytes": size}),
            encoding="utf-8",
        )
        new.replace(self._state)


@contextmanager
def written_in_parts(target: Path, made_of: Mapping[str, Any]) -> Iterator[Parts]:
    """Open a file's parts; when the block ends well, the file is there.

    Args:
        target: the file. What it held before stays until then.
        made_of: what decides on the content, as plain JSON: parts of anything else are thrown away, and so
            are all parts when the block raises a ``UserError``.

    Raises:
        DataError: the file cannot be written, or is being written by another process.
    """
    partial = target.with_name(f".{target.name}.partial")
    state = target.with_name(f"{partial.name}.json")
    try:
        with _locked(partial, target) as out:
            rows, size = _found(state, made_of, os.fstat(out.fileno()).st_size)
            out.truncate(size)
            try:
                yield Parts(out, rows, state, made_of)
            except UserError:
                state.unlink(missing_ok=True)
                partial.unlink(missing_ok=True)
                raise
            out.flush()
            partial.replace(target)
            state.unlink(missing_ok=True)
    except OSError as error:
        raise DataError(ValidationIssue(f"cannot be written: {error.strerror}", file=str(target))) from error


def _found(state: Path, made_of: Mapping[str, Any], size: int) -> tuple[int, int]:
    """Return rows and bytes of the finished parts, if they are of the same origin."""
    try:
        found = json.loads(state.read_bytes())
        if found["schema"] == 1 and found["made_of"] == made_of and found["bytes"] <= size:
            return int(found["rows"]), int(found["bytes"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # none, or damaged: the work is done again
    return 0, 0


@contextmanager
def _locked(partial: Path, target: Path) -> Iterator[IO[str]]:
    while True:
        with partial.open("a", encoding="utf-8", newline="") as out:
            try:
                fcntl.flock(out.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise DataError(
                    ValidationIssue(
                        "another process is writing this file", file=str(target), hint="wait for it"
                    )
                ) from None
            # Another process may have finished its file, this very one, before the lock was ours.
            if partial.exists() and os.path.samestat(partial.stat(), os.fstat(out.fileno())):
                yield out
                return
