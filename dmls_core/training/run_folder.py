"""The run's folder in the store: trials, progress, results and the time spent searching."""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dmls_core.errors import (
    ConflictError,
    DataError,
    DmlsError,
    ObjectMissingError,
    StoreError,
    UserError,
    ValidationIssue,
)
from dmls_core.search.trial import Trial
from dmls_core.store import Store, layout

_SCHEMA = 1


class RunFolder:
    """The folder that a run writes to, local or in S3.

    Its content follows from the run's key, so two trainers of one run do no harm: they write the same trials
    and the same model. ``result.json`` is created last and once: a trainer that finds it returns it, and
    changes nothing.
    """

    def __init__(self, store: Store) -> None:
        self.token = ""
        """Distinguishes this folder from an earlier one of the same name; set by ``claim``."""
        self._store = store
        self._claimed = False
        self._progress: dict[str, Any] = {"schema": _SCHEMA, "finished": 0, "total": 0, "best": None}
        self._trial_files: set[str] = set()

    def claim(self, run_key: str) -> dict[str, Any] | None:
        """Mark the folder as this run's; return ``result.json`` if the run is finished.

        Raise ``UserError`` if the folder belongs to another run.
        """
        try:
            self.token = secrets.token_hex(4)
            content = {"schema": _SCHEMA, "run_key": run_key, "token": self.token}
            self._store.create(layout.RUN, _json(content))
        except ConflictError as error:
            run = self._read(layout.RUN)
            owner, self.token = run.get("run_key"), run.get("token", "")
            if owner != run_key:
                raise UserError(
                    f"{self._store.url} holds another run ({owner}): the spec or the data differ; "
                    "choose another folder"
                ) from error
        self._claimed = True
        return self.result()

    def result(self) -> dict[str, Any] | None:
        """Return ``result.json``, if the run is finished."""
        try:
            return self._read(layout.RESULT)
        except ObjectMissingError:
            return None

    def _read(self, key: str) -> dict[str, Any]:
        try:
            content: dict[str, Any] = json.loads(self._store.get(key))
        except ValueError as error:
            raise StoreError(
                f"{self._store.url}/{key} is damaged ({error}): remove it, or choose another folder"
            ) from error
        return content

    def finish(self, result: dict[str, Any]) -> dict[str, Any]:
        """Write ``result.json``; return it, or that of another trainer who was faster."""
        try:
            self._store.create(layout.RESULT, _json(result))
        except ConflictError:
            return self.result() or result
        self._store.delete(layout.ERROR)
        return result

    def fail(self, error: DmlsError) -> None:
        """Write ``error.json`` and the failed state, unless the folder is another run's.

        Failures of the store are ignored here, since ``error`` is more informative.
        """
        with suppress(StoreError):
            self._fail(error)

    def _fail(self, error: DmlsError) -> None:
        if not self._claimed and self._store.head(layout.RUN) is not None:
            return
        issues = [issue.as_json() for issue in error.issues] if isinstance(error, UserError) else []
        self._store.put(
            layout.ERROR,
            _json(
                {
                    "schema": _SCHEMA,
                    "kind": type(error).__name__,
                    "exit_code": error.exit_code,
                    "message": str(error),
                    "issues": issues,
                }
            ),
        )
        self.progress(self._progress | {"state": "failed", "message": str(error)})

    def earlier_progress(self) -> dict[str, Any]:
        """Return ``finished`` and ``best`` of an earlier attempt's ``progress.json``, if there is one."""
        try:
            earlier = self._read(layout.PROGRESS)
        except StoreError:  # also if it is damaged: it is replaced
            return {}
        return {name: earlier[name] for name in ("finished", "best") if name in earlier}

    def progress(self, progress: dict[str, Any]) -> None:
        """Write ``progress.json``, unless the folder may be another run's."""
        if not self._claimed:
            return
        self._progress = progress | {"updated": datetime.now(UTC).isoformat(timespec="milliseconds")}
        self._store.put(layout.PROGRESS, _json(self._progress))

    def trials(self, engine: str) -> list[Trial]:
        """Return the trials in the folder that this engine fitted."""
        trials = []
        for info in self._store.list(layout.TRIALS):
            try:
                trial = Trial.from_json(json.loads(self._store.get(info.key)))
            except ValueError:
                # Of another release, or damaged: the trial runs again and overwrites it.
                continue
            if trial.engine == engine:
                trials.append(trial)
        return trials

    def keep(self, trial: Trial) -> None:
        """Write a trial's file."""
        name = layout.trial(trial.number)
        self._store.put(name, _json(trial.as_json()))
        self._trial_files.add(name)

    def must_leave(self, worker: int) -> bool:
        """Return whether the platform has asked a worker to leave the search."""
        return self._store.head(layout.leave(worker)) is not None

    def clock(self) -> tuple[float, int]:
        """Return the seconds that all attempts to search have taken, and their number."""
        try:
            clock = json.loads(self._store.get(layout.CLOCK))
            return float(clock["seconds"]), int(clock["starts"])
        except (ObjectMissingError, ValueError, TypeError, KeyError):
            # A damaged file counts as missing: the trials' own seconds remain.
            return 0.0, 0

    def keep_clock(self, seconds: float, starts: int) -> None:
        """Write the values that ``clock`` returns."""
        self._store.put(
            layout.CLOCK, _json({"schema": _SCHEMA, "seconds": round(seconds, 3), "starts": starts})
        )

    def upload(self, folder: Path, below: str = "") -> list[dict[str, Any]]:
        """Write every file of a local folder, or ``below`` in it; return name, bytes and SHA-256 of each.

        What a listing does not show then is written again, trials too, as new objects. SeaweedFS may lose
        folders that it has confirmed, if its disk was full, but keep the objects in them. A write over such
        an object would not bring its folder back.
        """
        artifacts, written = [], self._trial_files.copy()
        for path in sorted(path for path in (folder / below).rglob("*") if path.is_file()):
            name = path.relative_to(folder).as_posix()
            self._store.upload(name, path)
            with path.open("rb") as stream:
                sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
            artifacts.append({"name": name, "bytes": path.stat().st_size, "sha256": sha256})
            written.add(name)
        for name in sorted(written - {info.key for info in self._store.list("")}):
            if name in self._trial_files:
                with suppress(ObjectMissingError):  # a trial that is gone is not worth another search
                    content = self._store.get(name)
                    self._store.delete(name)
                    self._store.put(name, content)
            else:
                self._store.delete(name)
                self._store.upload(name, folder / name)
        return artifacts


def _json(data: dict[str, Any]) -> bytes:
    return json.dumps(data, indent=1, allow_nan=False).encode()


FIRST_BEAT, LAST_BEAT = 0.5, 15.0
"""Seconds until the time is first written, and maximum seconds between later writes; each interval is twice
the one before."""

STARTS = 3
"""Maximum attempts that may use up the time without a single trial."""


class SearchClock:
    """Keeps the time of a search in the run's folder while the block runs, if there is a timeout.

    Ended trials record their own seconds; the clock adds what a killed trainer spent on an unfinished one.
    """

    def __init__(self, folder: RunFolder, timeout: float | None) -> None:
        self._folder = folder
        self._timeout = timeout
        self._before, self._starts = folder.clock() if timeout is not None else (0.0, 0)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dmls-clock", daemon=True)

    def left(self, earlier_trials: Sequence[Trial], *, workers: int = 1) -> float | None:
        """Return the timeout for a search that counts ``earlier_trials``, less the time of unfinished ones.

        ``earlier_trials`` are those of earlier attempts, which ``workers`` trainers shared. Raise
        ``DataError`` if the time is up, and attempt after attempt ended without a trial.
        """
        if self._timeout is None:
            return None
        if not earlier_trials and self._starts >= STARTS and self._before >= self._timeout:
            raise DataError(
                ValidationIssue(
                    "the time was up before the first trial ended",
                    key="search.timeout",
                    found=f"{self._timeout:g} s, {self._before:.0f} s spent in {self._starts} attempts",
                    hint="raise it, or let trials take less: fewer trees, fewer rows",
                )
            )
        paid = sum(trial.seconds for trial in earlier_trials) / workers
        self._before = max(self._before, paid)
        return self._timeout - (self._before - paid)

    @property
    def remaining(self) -> float | None:
        """Seconds until the time is up, after a call of ``left``; ``None`` without a timeout."""
        return None if self._timeout is None else self._timeout - self._before

    def __enter__(self) -> Self:
        self._started = time.monotonic()
        self._starts += 1
        if self._timeout is not None:
            self._keep()
            self._thread.start()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        if self._timeout is not None:
            self._thread.join()

    def _run(self) -> None:
        beat = FIRST_BEAT
        while not self._done.wait(beat):
            self._keep()
            beat = min(LAST_BEAT, 2 * beat)

    def _keep(self) -> None:
        try:
            self._folder.keep_clock(self._before + time.monotonic() - self._started, self._starts)
        except DmlsError:
            return  # the next write may succeed; if the store is gone, writing trials raises
