"""Files of the model that small models share, and whether its process runs.

::

    <repository>/dmls-shared/                         its configuration and its code
    <repository>/.dmls/shared/<low>/<high>.json       the version of a slot, with the SHA-256 of its files

A version keeps its slot. ``low`` follows from the model's name and version, ``high`` is the first
free number.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import PurePosixPath

import numpy as np

from dmls_core.errors import ConflictError, ObjectMissingError, ServingError, ServingTimeoutError
from dmls_core.serving.formats.base import ServingFormat, in_process_code
from dmls_core.serving.repository.files import RepositoryFiles
from dmls_core.serving.triton.client import TritonClient
from dmls_core.serving.triton.model_config import BOOKKEEPING, CONFIG_FILE
from dmls_core.serving.triton.shared_process import (
    CODE_VERSION,
    HIGH,
    LOW,
    SHARED,
    Slot,
    shared_code,
    shared_config,
)
from dmls_core.store import Store

RECORDS = f"{BOOKKEEPING}/shared"
_SCHEMA = 1

_ALIVE = "dmls.alive"
"""Id of a request that the shared process answers without a model."""


class SharedProcess:
    """The shared model in the store of a model repository."""

    def __init__(self, store: Store, files: RepositoryFiles) -> None:
        """Bind to a store; nothing is read yet."""
        self._store, self._files = store, files

    def write_model(self, serving: ServingFormat) -> None:
        """Write the shared model's code, with that of a format, and its configuration; skip what is there."""
        for file, content in shared_code(in_process_code([serving])).items():
            self._files.replace(f"{SHARED}/{CODE_VERSION}/{file}", content)
        self._files.replace(f"{SHARED}/{CONFIG_FILE}", shared_config())

    def slot(self, model: str, version: int, sums: Mapping[str, str]) -> Slot | None:
        """Return the slot of a version, with a record of its files; ``None`` if no slot is free.

        ``sums``: SHA-256 of the files that the process reads.
        """
        record = {
            "schema": _SCHEMA,
            "model": model,
            "version": version,
            "sha256": dict(sums),
        }
        content = json.dumps(record).encode()
        taken = self._taken(model, version)
        for high, (owner, number) in taken.items():
            if (owner, number) == (model, version):
                slot = Slot(_low(model, version), high)
                if self._store.get(_key(slot)) != content:  # the model was deleted and trained anew
                    self._store.put(_key(slot), content)
                return slot
        for high in range(HIGH):
            if high not in taken:
                slot = Slot(_low(model, version), high)
                try:
                    self._store.create(_key(slot), content)
                except ConflictError:  # another model's publisher was faster
                    continue
                return slot
        return None

    def free(self, model: str, version: int) -> None:
        """Delete the record of a version that was removed; requests for its slot fail from then on."""
        for high, owner in self._taken(model, version).items():
            if owner == (model, version):
                self._store.delete(_key(Slot(_low(model, version), high)))

    def _taken(self, model: str, version: int) -> dict[int, tuple[str, int]]:
        """Return the model and version of each slot that this version might have, by ``high``."""
        taken = {}
        for info in self._store.list(f"{RECORDS}/{_low(model, version)}/"):
            try:
                record = json.loads(self._store.get(info.key))
            except ObjectMissingError:  # another publisher freed it
                continue
            taken[int(PurePosixPath(info.key).stem)] = record["model"], record["version"]
        return taken


def has_shared_process(store: Store) -> bool:
    """Return whether the model repository in ``store`` has a shared process."""
    return store.head(f"{SHARED}/{CONFIG_FILE}") is not None


def process_runs(client: TritonClient) -> bool:
    """Return whether the shared process of a server answers; its readiness does not say.

    Raises:
        ServingTimeoutError: it does not answer in time, because it is busy: one that ended fails at once.
        ServingError: the server itself does not answer.
    """
    try:
        client.infer_tensors(SHARED, {"number_0": np.zeros((1, 1))}, request_id=_ALIVE)
    except ServingTimeoutError:
        raise
    except ServingError:
        if client.live():
            return False
        raise
    return True


def restart_process(client: TritonClient) -> bool:
    """Start the shared process of a server again if it ended; return whether it had.

    Triton does not do that by itself. The ensembles in front of it answer again without being loaded.

    Raises:
        ServingError: the server does not answer, or the process does not start.
    """
    if process_runs(client):
        return False
    client.unload(SHARED)  # a load alone does nothing: Triton takes the model for loaded
    client.load(SHARED)
    if not process_runs(client):
        raise ServingError(
            f"the shared process of Triton at {client.addresses['http']} does not start: see its log"
        )
    return True


def _low(model: str, version: int) -> int:
    return zlib.crc32(f"{model}/{version}".encode()) % LOW


def _key(slot: Slot) -> str:
    return f"{RECORDS}/{slot.low}/{slot.high}.json"
