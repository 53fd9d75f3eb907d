"""A job's label files: which are new, and the results of earlier monitor runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from dmls_core.errors import ObjectMissingError
from dmls_core.monitoring.inference_log import MAX_BYTES
from dmls_core.spec.partitions import parse_names
from dmls_core.store import ObjectInfo, Store, is_key, layout

_SCHEMA = 1
STATE_FILE = "labels.json"

MAX_LOG_BYTES, MAX_LOG_FILES = 1 << 30, 5_000
"""Part of the inference log that labels are joined with, the newest files."""

MAX_HISTORY = 100

RETRY_PERIOD = timedelta(days=1)
"""Age up to which labels are joined again: they may arrive before the log is collected."""


@dataclass(frozen=True, slots=True)
class LabelState:
    """What earlier monitor runs know about a job's labels; ``labels.json``.

    Attributes:
        files: key -> ETag of the files that have been compared or cannot be read.
        tried: identifies the files and the log of the last run if there were too few labels.
        waiting: identifies the files that were too few.
        history: earlier comparisons, oldest first.
    """

    files: Mapping[str, str] = field(default_factory=dict)
    tried: str = ""
    waiting: str = ""
    history: Sequence[Mapping[str, Any]] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the content of ``labels.json``."""
        return {
            "schema": _SCHEMA,
            "files": dict(self.files),
            "tried": self.tried,
            "waiting": self.waiting,
            "history": list(self.history[-MAX_HISTORY:]),
        }


def state_key(team: str, job: str) -> str:
    """Return the key of a job's ``labels.json``."""
    return layout.monitor_folder(team, job) + STATE_FILE


def read_state(store: Store, team: str, job: str) -> LabelState:
    """Return what earlier monitor runs know about a job's labels."""
    try:
        state = json.loads(store.get(state_key(team, job)))
    except ObjectMissingError:
        return LabelState()
    return LabelState(state["files"], state["tried"], state["waiting"], state["history"])


def list_label_files(store: Store, team: str, job: str, path: str) -> list[ObjectInfo]:
    """Return a job's label files, oldest first; ``path`` is ``[data] labels`` of the spec."""
    folder, (prefix, expression) = layout.incoming_folder(team, job), parse_names(path)
    files = []
    for info in store.list(folder + prefix):
        name = info.key.removeprefix(folder)
        ours = name.rpartition("/")[2].startswith((".", "_status.")) or name == layout.SPEC_FILE
        if expression.fullmatch(name) and not ours and is_key(info.key):
            files.append(info)
    return sorted(files, key=lambda info: (info.modified, info.key))


def content_id(files: Iterable[ObjectInfo]) -> str:
    """Return an id of the files' content."""
    return hashlib.sha256(json.dumps([(info.key, info.etag) for info in files]).encode()).hexdigest()[:16]


def attempt_id(files: Sequence[ObjectInfo], logged: Sequence[ObjectInfo]) -> str:
    """Return an id of the files, and of the log while it can still add predictions to them."""
    recent = any(datetime.now(UTC) - info.modified < RETRY_PERIOD for info in files)
    newest = max((info.modified.isoformat() for info in logged), default="") if recent else ""
    return f"{content_id(files)} {newest}"


def newest_within_limit(files: Sequence[ObjectInfo]) -> list[ObjectInfo]:
    """Return the newest files, at most ``MAX_BYTES`` together; input and result have the oldest first."""
    newest: list[ObjectInfo] = []
    left = MAX_BYTES
    for info in reversed(files):
        left -= info.size
        if left < 0:
            break
        newest.append(info)
    return newest[::-1]


def download_label_file(store: Store, info: ObjectInfo, folder: Path, number: int) -> Path:
    """Copy a label file to its own folder, under its own name, which messages contain."""
    file_folder = folder / str(number)
    file_folder.mkdir()
    path = file_folder / info.key.rpartition("/")[2]
    store.download(info.key, path)
    return path


def download_log_files(store: Store, logged: Sequence[ObjectInfo], folder: Path) -> Iterator[Path]:
    """Yield copies of the log's files, newest first; each copy replaces the one before."""
    left = MAX_LOG_BYTES
    path = folder / "logged.parquet"
    newest = sorted(logged, key=lambda info: (info.modified, info.key), reverse=True)
    for info in newest[:MAX_LOG_FILES]:
        left -= info.size
        if left < 0:
            return
        store.download(info.key, path)
        yield path
