"""Bring what Triton logged of its requests from a folder into the store, as Parquet.

Triton needs no credentials and no library for that: it writes files into a folder, and whoever may write to
the store fetches them. Each file becomes one object of the same name, written once, and is removed then:
interrupted and repeated, nothing is lost and nothing is there twice.
"""

from __future__ import annotations

import io
import json
import logging
import math
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmls_core.errors import ConflictError
from dmls_core.monitoring.requests import ENDING
from dmls_core.store import ObjectInfo, Store, layout

if TYPE_CHECKING:
    import polars as pl

log = logging.getLogger(__name__)

WHOLE, PART = ".jsonl", ".part"

ABANDONED_SECONDS = 3600.0
"""Age from which a file that was never finished is that of a killed process."""

DAY_FILES, DAY_BYTES = 1_000, 256 << 20
"""What is kept of a job's requests of one day; further files are dropped."""

KEPT_DAYS = 90
"""Days for which logged requests stay in the store."""

OWN = "dmls."
"""How the names of the columns begin that are not the user's."""


@dataclass(slots=True)
class Collected:
    """What was fetched.

    Attributes:
        rows: rows brought into the store, by model.
        dropped: files beyond what a day may hold, or that cannot be read, by model.
        removed: objects that were too old.
    """

    rows: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    removed: int = 0


def collect(store: Store, folder: Path) -> Collected:
    """Fetch every model's whole files; remove objects older than ``KEPT_DAYS``.

    Args:
        store: of the platform.
        folder: what ``DMLS_INFERENCE_LOG`` names to Triton.

    Raises:
        StoreError: the store does not answer; what was not fetched stays.
    """
    found = Collected()
    for own in sorted(folder.glob("*.*")):
        team, _, job = own.name.partition(".")
        if own.is_dir() and layout.is_name(team) and layout.is_name(job):
            _collect_model(store, own, layout.inference_folder(team, job), found)
    return found


def _collect_model(store: Store, folder: Path, prefix: str, found: Collected) -> None:
    there = list(store.list(f"{prefix}dt="))
    found.removed += _remove_old(store, there, prefix)
    files, sizes = Counter[str](), Counter[str]()
    for info in there:
        day = info.key.removeprefix(prefix).partition("/")[0]
        files[day] += 1
        sizes[day] += info.size
    for path in _whole(folder):
        day = f"dt={path.name[:4]}-{path.name[4:6]}-{path.name[6:8]}"
        content = None
        if files[day] < DAY_FILES and sizes[day] < DAY_BYTES:
            content = _parquet(path)
        if content is None:
            found.dropped[folder.name] += 1
        else:
            data, rows = content
            try:
                store.create(f"{prefix}{day}/{path.stem}{ENDING}", data)
            except ConflictError:
                rows = 0  # fetched before, and not removed
            found.rows[folder.name] += rows
            files[day] += 1
            sizes[day] += len(data)
        path.unlink(missing_ok=True)


def _whole(folder: Path) -> list[Path]:
    """Return the files that nobody writes any more, the oldest first."""
    old = time.time() - ABANDONED_SECONDS
    parts = [path for path in folder.glob(f"*{PART}") if _modified(path) < old]
    return sorted([*folder.glob(f"*{WHOLE}"), *parts], key=lambda path: path.name)


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # finished meanwhile, under another name
        return math.inf


def _remove_old(store: Store, there: list[ObjectInfo], prefix: str) -> int:
    """Remove the days before the oldest one that is kept; return the number of objects."""
    first = f"{prefix}dt={datetime.now(UTC) - timedelta(days=KEPT_DAYS):%Y-%m-%d}"
    old = [info.key for info in there if info.key < first]
    for key in old:
        store.delete(key)
    return len(old)


def _parquet(path: Path) -> tuple[bytes, int] | None:
    """Return a file as Parquet, and its number of rows; None where it holds nothing that can be read."""
    import polars as pl

    try:
        entries = list(_entries(path))
        frame = pl.concat([_frame(entry) for entry in entries], how="diagonal_relaxed")
    except (pl.exceptions.PolarsError, ValueError, KeyError, TypeError, FileNotFoundError):
        log.warning("%s holds no requests that can be read", path)
        return None
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    return buffer.getvalue(), frame.height


def _entries(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a file; the last one of a killed process may be cut."""
    with path.open("rb") as file:
        for line in file:
            try:
                yield json.loads(line)
            except ValueError:
                return


def _frame(entry: dict[str, Any]) -> pl.DataFrame:
    """Return the rows of one request."""
    import polars as pl

    columns = {
        name: pl.Series(name, values, dtype=_type(values))
        for name, values in entry["columns"].items()
        if not name.startswith(OWN)
    }
    rows, outputs, labels = entry["rows"], entry["outputs"], entry["labels"]
    at = datetime.fromtimestamp(entry["time"], UTC)
    own = {
        "request_id": pl.Series([entry["id"]] * len(rows), dtype=pl.String),
        "row": pl.Series(rows, dtype=pl.Int32),
        "time": pl.Series([at] * len(rows), dtype=pl.Datetime("us", "UTC")),
        "version": pl.Series([entry["version"]] * len(rows), dtype=pl.Int64),
    }
    own["prediction"] = _predictions(outputs, labels)
    for position, label in enumerate(labels or ()):
        own[f"probability.{label}"] = pl.Series([row[position] for row in outputs], dtype=pl.Float32)
    if "shadow_version" in entry:
        own["challenger_version"] = pl.Series([entry["shadow_version"]] * len(rows), dtype=pl.Int64)
        own["challenger_prediction"] = _predictions(entry["shadow_outputs"], entry["shadow_labels"])
    return pl.DataFrame(columns | {OWN + name: series for name, series in own.items()})


def _predictions(outputs: list[list[float]], labels: list[str] | None) -> pl.Series:
    import polars as pl

    if labels is None:
        return pl.Series([row[0] for row in outputs], dtype=pl.Float32)
    return pl.Series([labels[row.index(max(row))] for row in outputs], dtype=pl.String)


def _type(values: list[Any]) -> pl.DataType:
    import polars as pl

    return pl.String() if any(isinstance(value, str) for value in values) else pl.Float64()
