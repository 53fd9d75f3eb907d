"""A cache of encoded matrices on one machine: trainers on the same data read it once and share its memory.

An entry is a folder named by a hash of all that the matrices depend on: content of the files, columns, split,
encoding, limits and versions. It is written to a temporary folder and renamed, never changed, and mapped into
memory: trainers share the pages of what they do not write. Each file has a checksum; a damaged entry is built
again. Beyond the limit of bytes, the entries that were used least recently are deleted; a trainer that has
mapped one keeps it. Each team has a folder of its own.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import time
import uuid
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.data.table.memory import TableSize
from dmls_core.settings import CacheSettings, DataLimits
from dmls_core.training.request import TrainingJob

_SCHEMA = 1
ENTRY, SIZE, PARTIAL = "entry.json", "size.json", ".part-"
_PARTIAL_SECONDS = 3600.0
"""Age from which a folder that a killed trainer was writing is deleted."""

_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Entry:
    """What a trainer reads from the cache.

    Attributes:
        facts: JSON data.
        arrays: memory maps that copy the pages to which they are written.
    """

    facts: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


class MatrixCache:
    """The entries of one team for one job's data; ``encoding`` names an entry."""

    def __init__(self, folder: Path, most: int, key: Mapping[str, Any]) -> None:
        """Use a team's folder, which need not exist; ``most`` is the limit of bytes."""
        self._folder, self._most = folder, most
        digest = hashlib.sha256(json.dumps(key, sort_keys=True, default=str).encode())
        self._job_folder = folder / digest.hexdigest()

    @classmethod
    def of(cls, job: TrainingJob) -> MatrixCache | None:
        """Return the cache for a job's data; None if the settings name no folder."""
        settings = CacheSettings.from_environment()
        if not settings.folder:
            return None
        spec, request = job.spec, job.request
        document = spec.as_json()
        key = {
            "schema": _SCHEMA,
            "files": [(file.sha256, Path(file.url).suffixes) for file in job.files],
            "interval": (request.since, request.until),
            "spec": {name: document.get(name) for name in ("columns", "data", "evaluation", "schedule")},
            "models": [model.name for model in spec.models],
            "search": (spec.search.seed, spec.search.folds),
            "limits": asdict(DataLimits.from_environment()),
            "versions": [version(name) for name in ("dmls", "numpy", "polars", "scikit-learn")],
        }
        return cls(Path(settings.folder) / request.team, settings.bytes, key)

    @property
    def size(self) -> TableSize | None:
        """Return the size of the data, if an earlier trainer has measured it."""
        try:
            return TableSize(**json.loads((self._job_folder / SIZE).read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    def keep_size(self, size: TableSize) -> None:
        """Keep the size of the data."""
        with suppress(OSError):
            self._make()
            part = self._job_folder / f"{PARTIAL}{uuid.uuid4().hex}"
            part.write_text(json.dumps(asdict(size)))
            part.replace(self._job_folder / SIZE)

    @contextmanager
    def locked(self, encoding: str) -> Iterator[None]:
        """Hold the entry's lock, so that of several trainers one builds it and the others wait."""
        try:
            self._make()
            file = (self._job_folder / f"{encoding}.lock").open("w")
        except OSError:
            yield
            return
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def load(self, encoding: str) -> Entry | None:
        """Map an entry into memory; delete it and return None if it is damaged, None if there is none."""
        folder = self._job_folder / encoding
        try:
            facts = json.loads((folder / ENTRY).read_bytes())
            if any(_checksum(folder / name) != sums for name, sums in facts["files"].items()):
                raise ValueError("a file is damaged")
            arrays = {
                Path(name).stem: np.load(folder / name, mmap_mode="c", allow_pickle=False)
                for name in facts["files"]
            }
            os.utime(self._job_folder)
        except (OSError, ValueError, KeyError, TypeError):
            _delete(folder)
            return None
        return Entry(facts, arrays)

    def keep(self, encoding: str, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write an entry, unless it is larger than the cache or there is no room on the disk."""
        need = sum(array.nbytes for array in arrays.values())
        part = self._job_folder / f"{PARTIAL}{uuid.uuid4().hex}"
        try:
            if not self._make_room(need):
                return
            self._make()
            part.mkdir()
            sums = {}
            for name, array in arrays.items():
                np.save(part / f"{name}.npy", array, allow_pickle=False)
                sums[f"{name}.npy"] = _checksum(part / f"{name}.npy")
            (part / ENTRY).write_text(json.dumps({**facts, "files": sums}))
            part.rename(self._job_folder / encoding)
        except OSError:
            _delete(part)

    def _make(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # only its team may look into it
        self._job_folder.mkdir(exist_ok=True)

    def _make_room(self, need: int) -> bool:
        """Delete what was used least recently until ``need`` bytes fit; return whether they do."""
        if need > self._most:
            return False
        self._make()
        for part in self._folder.glob(f"*/{PARTIAL}*"):
            with suppress(OSError):
                if time.time() - part.stat().st_mtime > _PARTIAL_SECONDS:
                    _delete(part)
        ages = {}
        for folder in self._folder.iterdir():
            with suppress(OSError):
                ages[folder] = folder.stat().st_mtime
        sizes = {folder: _size(folder) for folder in ages}
        for folder in sorted(sizes, key=lambda folder: ages[folder]):
            if sum(sizes.values()) + need <= self._most:
                break
            if folder != self._job_folder:
                _delete(folder)
                del sizes[folder]
        return sum(sizes.values()) + need <= self._most


def _checksum(path: Path) -> list[int]:
    """Return the size and the CRC-32 of a file, which finds damage, not forgery."""
    checksum = size = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            checksum, size = zlib.crc32(block, checksum), size + len(block)
    return [size, checksum]


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            total += path.stat().st_size if path.is_file() else 0
    return total


def _delete(path: Path) -> None:
    """Delete a folder or file; a reader sees all of it or nothing."""
    gone = path.with_name(f"{PARTIAL}{uuid.uuid4().hex}")
    with suppress(OSError):
        path.rename(gone)
        if gone.is_dir():
            shutil.rmtree(gone, ignore_errors=True)
        else:
            gone.unlink()
