"""Which files of labels of a job are new, and what earlier looks at labels found."""

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
from dmls_core.store import ObjectInfo, Store, layout

SCHEMA = 1
STATE = "labels.json"

LOG_BYTES, LOG_FILES = 1 << 30, 5_000
"""How much of the inference log is looked through for the answers that labels belong to: the newest."""

HISTORY = 100
"""Comparisons that are remembered."""

YOUNG = timedelta(days=1)
"""Age up to which labels are tried again when the log has grown: they may be known before it is fetched."""


@dataclass(frozen=True, slots=True)
class LabelState:
    """What is known of a job's labels; ``labels.json``.

    Attributes:
        files: key -> ETag of the files that have been compared, or cannot be read.
        tried: names what the last look had before it, where that was too little to judge.
        waiting: names the files that were too few then.
        history: earlier comparisons, the latest last.
    """

    files: Mapping[str, str] = field(default_factory=dict)
    tried: str = ""
    waiting: str = ""
    history: Sequence[Mapping[str, Any]] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the content of ``labels.json``."""
        return {
            "schema": SCHEMA,
            "files": dict(self.files),
            "tried": self.tried,
            "waiting": self.waiting,
            "history": list(self.history[-HISTORY:]),
        }


def state_key(team: str, job: str) -> str:
    """Key of a job's ``labels.json``."""
    return layout.monitor_folder(team, job) + STATE


def read_state(store: Store, team: str, job: str) -> LabelState:
    """Return what is known of a job's labels."""
    try:
        found = json.loads(store.get(state_key(team, job)))
    except ObjectMissingError:
        return LabelState()
    return LabelState(found["files"], found["tried"], found["waiting"], found["history"])


def list_labels(store: Store, team: str, job: str, path: str) -> list[ObjectInfo]:
    """Return a job's files of labels, the oldest first.

    Args:
        store: holds what was dropped.
        team: of the job.
        job: its name.
        path: ``[data] labels`` of the spec.
    """
    folder, (prefix, expression) = layout.incoming_folder(team, job), parse_names(path)
    there = []
    for info in store.list(folder + prefix):
        name = info.key.removeprefix(folder)
        own = name.rpartition("/")[2].startswith((".", "_status.")) or name == layout.SPEC_FILE
        if expression.fullmatch(name) and not own:
            there.append(info)
    return sorted(there, key=lambda info: (info.modified, info.key))


def name_of(files: Iterable[ObjectInfo]) -> str:
    """Return a name for files: the same for the same content."""
    return hashlib.sha256(json.dumps([(info.key, info.etag) for info in files]).encode()).hexdigest()[:16]


def attempt_of(files: Sequence[ObjectInfo], logged: Sequence[ObjectInfo]) -> str:
    """Return a name for what a look has before it: the files, and the log as far as it can still matter."""
    young = any(datetime.now(UTC) - info.modified < YOUNG for info in files)
    newest = max((info.modified.isoformat() for info in logged), default="") if young else ""
    return f"{name_of(files)} {newest}"


def newest_within(files: Sequence[ObjectInfo]) -> list[ObjectInfo]:
    """Return the newest of some files, ``MAX_BYTES`` together at most; both with the oldest first."""
    kept: list[ObjectInfo] = []
    left = MAX_BYTES
    for info in reversed(files):
        left -= info.size
        if left < 0:
            break
        kept.append(info)
    return kept[::-1]


def fetch(store: Store, info: ObjectInfo, folder: Path, number: int) -> Path:
    """Copy a file of labels; it keeps its name, since messages tell it."""
    own = folder / str(number)
    own.mkdir()
    path = own / info.key.rpartition("/")[2]
    store.download(info.key, path)
    return path


def logged_files(store: Store, logged: Sequence[ObjectInfo], folder: Path) -> Iterator[Path]:
    """Yield copies of the log's files, the newest first, one at a time."""
    left = LOG_BYTES
    path = folder / "logged.parquet"
    newest = sorted(logged, key=lambda info: (info.modified, info.key), reverse=True)
    for info in newest[:LOG_FILES]:
        left -= info.size
        if left < 0:
            return
        store.download(info.key, path)
        yield path
