"""Write a text file in parts: it appears as a whole, and an interrupted write resumes.

While ``target`` is written, ``.<name>.partial`` next to it holds the finished parts, and
``.<name>.partial.json`` describes their origin.
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
    """The finished parts of a file, with ``rows`` rows; ``out`` is positioned after them."""

    out: IO[str]
    rows: int
    _state: Path | None = None
    _made_of: Mapping[str, Any] | None = None

    def finish(self, rows: int) -> None:
        """Finish a part with ``rows`` rows."""
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
    """Open a file's parts; when the block succeeds, they replace the file, whose content stays until then.

    ``made_of`` is the origin of the content as plain JSON. Parts with another origin are discarded, and so
    are all parts if the block raises a ``UserError``.

    Raises:
        DataError: the file cannot be written, or is being written by another process.
    """
    partial = target.with_name(f".{target.name}.partial")
    state = target.with_name(f"{partial.name}.json")
    try:
        with _locked(partial, target) as out:
            rows, size = _read_progress(state, made_of, os.fstat(out.fileno()).st_size)
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


def _read_progress(state: Path, made_of: Mapping[str, Any], size: int) -> tuple[int, int]:
    """Return rows and bytes of the finished parts, if they have the same origin."""
    try:
        progress = json.loads(state.read_bytes())
        if progress["schema"] == 1 and progress["made_of"] == made_of and progress["bytes"] <= size:
            return int(progress["rows"]), int(progress["bytes"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # none, or damaged: start again
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
            # Another process may have finished and renamed this file before the lock was ours.
            if partial.exists() and os.path.samestat(partial.stat(), os.fstat(out.fileno())):
                yield out
                return
