"""The configurations of a model and its table endpoint: of their own, or in front of the shared process.

A model has processes of its own unless its size is within ``DMLS_SERVING_SHARED_BYTES``. It also has them if
it logs requests or has a canary, or if the repository is in S3, from which Triton copies a model when it
loads it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dmls_core.data.encoder import Encoder
from dmls_core.serving.formats.base import ServingFormat, format_of
from dmls_core.serving.formats.model_check import MODEL_JSON, check_model_json
from dmls_core.serving.repository.files import VERSION_FILE, RepositoryFiles, recorded_checksums
from dmls_core.serving.repository.options import ServingOptions
from dmls_core.serving.repository.shared_process import SharedProcess
from dmls_core.serving.repository.table_endpoints import ENCODER, TableEndpoints
from dmls_core.serving.triton.model_config import (
    CANDIDATE,
    CHALLENGER,
    CONFIG_FILE,
    ModelShape,
    Scaling,
    table_name,
)
from dmls_core.serving.triton.shared_process import LARGEST_BYTES, Slot, fits, forest_front, table_front
from dmls_core.settings import ServingLimits
from dmls_core.store import Store


class Configurations:
    """Writes the configurations in the store of a model repository."""

    def __init__(
        self,
        store: Store,
        files: RepositoryFiles,
        read: Callable[[str, int, str], dict[str, Any]],
        *,
        sharing: bool,
    ) -> None:
        """Bind to a store; ``read`` returns the object in one of a version's JSON files.

        Without ``sharing``, every model has processes of its own.
        """
        self._store, self._files, self._read = store, files, read
        self._sharing = sharing and files.in_place
        self.tables = TableEndpoints(store, files, read)
        self._shared = SharedProcess(store, files)

    def write(
        self,
        name: str,
        versions: Sequence[int],
        options: ServingOptions,
        scaling: Scaling,
        *,
        share: bool,
    ) -> None:
        """Configure a model, or its candidate, to serve the first of ``versions``.

        Others are versions that may answer until Triton has loaded the first. ``share``: by the shared
        process, if that has a free slot.
        """
        slot = self._slot(name, versions[0]) if share else None
        if slot:
            self._write_shared(name, versions[0], slot)
        else:
            self.tables.configure(name, versions, options, scaling)
            self.write_model(name, versions[0], scaling)

    def write_model(self, name: str, version: int, scaling: Scaling) -> None:
        """Configure the model alone, in its own backend."""
        serving = self.format(name, version)
        if code := serving.code():
            # In place of a folder that Python would write: a changed folder has Triton load the model again.
            for file, content in {**code, "__pycache__": ""}.items():
                self._files.replace(f"{name}/{version}/{file}", content)
        shape = self._shape(name, version)
        config = serving.config(name, shape, versions=[version], scaling=scaling)
        self._files.replace(f"{name}/{CONFIG_FILE}", config)

    def format(self, name: str, version: int) -> ServingFormat:
        """Return the serving format of a version; ``UserError``: no installed package serves it."""
        model = _model(name)
        return format_of(self._read(model, version, MODEL_JSON), f"version {version} of {model}")

    def may_share(self, name: str, version: int, options: ServingOptions) -> bool:
        """Return whether a version is small and simple enough for the shared process."""
        limit = min(ServingLimits.from_environment().shared_bytes, LARGEST_BYTES)
        if not (self._sharing and limit) or options.log_share or options.canary:
            return False
        if not self.format(name, version).in_process:
            return False
        return 0 < self.size(name, version) <= limit and fits(self._encoder(_model(name), version))

    def size(self, name: str, version: int) -> int:
        """Return the size of a version's model in bytes; 0: a file is missing."""
        files = self.format(name, version).files
        infos = [self._store.head(f"{_model(name)}/{version}/{file}") for file in files]
        return sum(info.size for info in infos if info) if all(infos) else 0

    def free(self, model: str, version: int) -> None:
        """Forget a version that was removed."""
        if self._files.in_place:
            self._shared.free(model, version)

    def _slot(self, name: str, version: int) -> Slot | None:
        model = _model(name)
        sums = recorded_checksums(self._read(model, version, VERSION_FILE), model, version)
        files = (ENCODER, *self.format(name, version).files)
        return self._shared.slot(model, version, {file: sums[file] for file in files})

    def _write_shared(self, name: str, version: int, slot: Slot) -> None:
        self._shared.write_model(self.format(name, version))
        self.tables.add_encoder(name, version)  # Triton requires the folder of a version
        table = table_front(name, self._encoder(_model(name), version), version, slot)
        self._files.replace(f"{table_name(name)}/{CONFIG_FILE}", table)
        forest = forest_front(name, self._shape(name, version), version, slot)
        self._files.replace(f"{name}/{CONFIG_FILE}", forest)

    def _encoder(self, model: str, version: int) -> Encoder:
        return Encoder.from_json(self._read(model, version, ENCODER))

    def _shape(self, name: str, version: int) -> ModelShape:
        model = _model(name)
        source = f"{self._store.url}/{model}/{version}/{MODEL_JSON}"
        model_json = check_model_json(self._read(model, version, MODEL_JSON), source)
        classifier = model_json["task"] == "classification"
        return ModelShape(model_json["n_features"], model_json["n_outputs"] if classifier else 1, classifier)


def _model(name: str) -> str:
    """Return the model of a candidate's or challenger's name, or the name itself."""
    return name.removesuffix(CANDIDATE).removesuffix(CHALLENGER)
