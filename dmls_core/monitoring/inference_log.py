"""The inference log: fetch Triton's log files into the store, and find requests not yet compared.

Triton writes JSON Lines into a folder; it needs no credentials and no Parquet library. ``collect`` writes
each file into the store as one Parquet object of the same name, then deletes the file. An interrupted or
repeated run loses no rows and duplicates none.

A job's logged requests are Parquet files anywhere below ``inference/<team>/<job>/``, with the features under
their own names. Files are written once and never changed.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmls_core.errors import ConflictError, ObjectMissingError
from dmls_core.store import ObjectInfo, Store, is_key, layout

if TYPE_CHECKING:
    import polars as pl

log = logging.getLogger(__name__)

_SCHEMA = 1
STATE_FILE = "state.json"
_SUFFIX = ".parquet"
FINISHED_SUFFIX, PART_SUFFIX = ".jsonl", ".part"

MAX_BYTES = 256 << 20
"""Bytes of files read for one comparison at most, the newest files."""

ABANDONED_SECONDS = 3600.0
"""Age from which an unfinished file is assumed to belong to a killed process."""

MAX_DAY_FILES, MAX_DAY_BYTES = 1_000, 256 << 20
"""Limits on a job's requests of one day in the store; further files are discarded."""

_RETENTION_DAYS = 90

COLUMN_PREFIX = "dmls."
"""Prefix of the log's own columns; all other columns are the user's."""


@dataclass(frozen=True, slots=True)
class RequestCursor:
    """Position up to which logged requests have been compared.

    Attributes:
        until: modification time of the latest file that was compared, ISO 8601 in UTC; empty if none was.
        keys: the compared files with exactly that modification time.
    """

    until: str = ""
    keys: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the content of ``state.json``."""
        return {"schema": _SCHEMA, "until": self.until, "keys": list(self.keys)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RequestCursor:
        """Rebuild a cursor from the content of ``state.json``."""
        return cls(data["until"], tuple(data["keys"]))

    def advance(self, compared: Sequence[ObjectInfo]) -> RequestCursor:
        """Return the cursor after further files have been compared."""
        until = max(_modified_at(info) for info in compared)
        keys = {info.key for info in compared if _modified_at(info) == until}
        return RequestCursor(until, tuple(sorted(keys.union(self.keys if until == self.until else ()))))

    @property
    def name(self) -> str:
        """A name for the comparison that ends here; the same files give the same name."""
        digest = hashlib.sha256(json.dumps(self.as_json()).encode()).hexdigest()[:8]
        return f"{self.until[:19].replace(':', '').replace('-', '')}Z-{digest}"


def read_cursor(store: Store, team: str, job: str) -> RequestCursor:
    """Return the position up to which a job's requests have been compared."""
    try:
        return RequestCursor.from_json(json.loads(store.get(layout.monitor_folder(team, job) + STATE_FILE)))
    except ObjectMissingError:
        return RequestCursor()


def list_requests(store: Store) -> dict[tuple[str, str], list[ObjectInfo]]:
    """Return every job's files of logged requests, by team and job."""
    files: dict[tuple[str, str], list[ObjectInfo]] = {}
    for info in store.list(layout.INFERENCE):
        team, _, rest = info.key.removeprefix(layout.INFERENCE).partition("/")
        job, _, file = rest.partition("/")
        if file.endswith(_SUFFIX) and layout.is_name(team) and layout.is_name(job) and is_key(info.key):
            files.setdefault((team, job), []).append(info)
    return files


def new_requests(files: Iterable[ObjectInfo], cursor: RequestCursor) -> list[ObjectInfo]:
    """Return the files after the cursor, ordered by modification time."""
    new = (info for info in files if _modified_at(info) >= cursor.until and info.key not in cursor.keys)
    return sorted(new, key=lambda info: (info.modified, info.key))


def download_newest(store: Store, files: Sequence[ObjectInfo], folder: Path) -> list[Path]:
    """Copy the newest files, at most ``MAX_BYTES`` but at least one file, and return the copies."""
    paths: list[Path] = []
    left = MAX_BYTES
    for number, info in enumerate(reversed(files)):
        left -= info.size
        if left < 0 and paths:
            break
        path = folder / f"{number}{_SUFFIX}"
        store.download(info.key, path)
        paths.append(path)
    return paths


def _modified_at(info: ObjectInfo) -> str:
    """Return the modification time as a text that sorts by time."""
    return info.modified.isoformat(timespec="microseconds")


@dataclass(slots=True)
class CollectResult:
    """Counts of one call of ``collect``: rows and files by model, and expired objects.

    ``rows`` were written to the store; ``dropped`` files were unreadable or beyond a day's limit.
    """

    rows: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    removed: int = 0


def collect(store: Store, folder: Path) -> CollectResult:
    """Move every model's finished log files into the store; delete objects older than ``_RETENTION_DAYS``.

    ``folder`` is the one that ``DMLS_INFERENCE_LOG`` names for Triton.

    Raises:
        StoreError: the store does not answer; files not yet written stay in the folder.
    """
    result = CollectResult()
    for path in sorted(folder.glob("*.*")):
        team, _, job = path.name.partition(".")
        if path.is_dir() and layout.is_name(team) and layout.is_name(job):
            _collect_model(store, path, layout.inference_folder(team, job), result)
    return result


def _collect_model(store: Store, folder: Path, prefix: str, result: CollectResult) -> None:
    stored = [info for info in store.list(f"{prefix}dt=") if is_key(info.key)]
    result.removed += _delete_expired(store, stored, prefix)
    files, sizes = Counter[str](), Counter[str]()
    for info in stored:
        day = info.key.removeprefix(prefix).partition("/")[0]
        files[day] += 1
        sizes[day] += info.size
    for path in _finished_files(folder):
        day = f"dt={path.name[:4]}-{path.name[4:6]}-{path.name[6:8]}"
        content = None
        if files[day] < MAX_DAY_FILES and sizes[day] < MAX_DAY_BYTES:
            content = _to_parquet(path)
        if content is None:
            result.dropped[folder.name] += 1
        else:
            data, rows = content
            try:
                store.create(f"{prefix}{day}/{path.stem}{_SUFFIX}", data)
            except ConflictError:
                rows = 0  # an interrupted run has written it already
            result.rows[folder.name] += rows
            files[day] += 1
            sizes[day] += len(data)
        path.unlink(missing_ok=True)


def _finished_files(folder: Path) -> list[Path]:
    """Return the files that no process writes any more, oldest first."""
    old = time.time() - ABANDONED_SECONDS
    parts = [path for path in folder.glob(f"*{PART_SUFFIX}") if _file_time(path) < old]
    return sorted([*folder.glob(f"*{FINISHED_SUFFIX}"), *parts], key=lambda path: path.name)


def _file_time(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # finished and renamed in the meantime
        return math.inf


def _delete_expired(store: Store, stored: list[ObjectInfo], prefix: str) -> int:
    """Delete the days before the retention period; return the number of objects."""
    first = f"{prefix}dt={datetime.now(UTC) - timedelta(days=_RETENTION_DAYS):%Y-%m-%d}"
    expired = [info.key for info in stored if info.key < first]
    for key in expired:
        store.delete(key)
    return len(expired)


def _to_parquet(path: Path) -> tuple[bytes, int] | None:
    """Return a file as Parquet and its number of rows; None if nothing in it can be read."""
    import polars as pl

    try:
        entries = list(_entries(path))
        frame = pl.concat([_frame(entry) for entry in entries], how="diagonal_relaxed")
    except (pl.exceptions.PolarsError, ValueError, KeyError, TypeError, FileNotFoundError):
        log.warning("%s contains no readable requests", path)
        return None
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    return buffer.getvalue(), frame.height


def _entries(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the requests of a file; the last line of a killed process may be incomplete."""
    with path.open("rb") as file:
        for line in file:
            try:
                yield json.loads(line)
            except ValueError:
                return


def _frame(entry: dict[str, Any]) -> pl.DataFrame:
    import polars as pl

    columns = {
        name: pl.Series(name, values, dtype=_dtype(values))
        for name, values in entry["columns"].items()
        if not name.startswith(COLUMN_PREFIX)
    }
    rows, outputs, labels = entry["rows"], entry["outputs"], entry["labels"]
    at = datetime.fromtimestamp(entry["time"], UTC)
    log_columns = {
        "request_id": pl.Series([entry["id"]] * len(rows), dtype=pl.String),
        "row": pl.Series(rows, dtype=pl.Int32),
        "time": pl.Series([at] * len(rows), dtype=pl.Datetime("us", "UTC")),
        "version": pl.Series([entry["version"]] * len(rows), dtype=pl.Int64),
    }
    log_columns["prediction"] = _predictions(outputs, labels)
    for position, label in enumerate(labels or ()):
        log_columns[f"probability.{label}"] = pl.Series([row[position] for row in outputs], dtype=pl.Float32)
    if "shadow_version" in entry:
        log_columns["challenger_version"] = pl.Series([entry["shadow_version"]] * len(rows), dtype=pl.Int64)
        log_columns["challenger_prediction"] = _predictions(entry["shadow_outputs"], entry["shadow_labels"])
    return pl.DataFrame(columns | {COLUMN_PREFIX + name: series for name, series in log_columns.items()})


def _predictions(outputs: list[list[float]], labels: list[str] | None) -> pl.Series:
    import polars as pl

    if labels is None:
        return pl.Series([row[0] for row in outputs], dtype=pl.Float32)
    return pl.Series([labels[row.index(max(row))] for row in outputs], dtype=pl.String)


def _dtype(values: list[Any]) -> pl.DataType:
    import polars as pl

    return pl.String() if any(isinstance(value, str) for value in values) else pl.Float64()
