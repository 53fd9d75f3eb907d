"""Files of table endpoints in a repository: one folder with the code, and the encoder of each version.

The process of a table endpoint finds the encoders of later versions itself. So a version with the columns,
labels and scaling of the served one changes neither code nor configuration, and Triton restarts no process.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from dmls_core.data.encoder import Encoder
from dmls_core.errors import ObjectMissingError
from dmls_core.serving.formats.base import format_of, in_process_code
from dmls_core.serving.formats.model_check import MODEL_JSON
from dmls_core.serving.repository.files import RepositoryFiles
from dmls_core.serving.repository.options import ServingOptions
from dmls_core.serving.triton.model_config import (
    CANDIDATE,
    CONFIG_FILE,
    Scaling,
    configured_versions,
    table_code,
    table_config,
    table_name,
)
from dmls_core.store import Store

ENCODER = "encoder.json"


class TableEndpoints:
    """The table endpoints in the store of a model repository."""

    def __init__(
        self, store: Store, files: RepositoryFiles, read: Callable[[str, int, str], dict[str, Any]]
    ) -> None:
        """Bind to a store; ``read`` returns the object in one of a version's JSON files."""
        self._store, self._files, self._read = store, files, read

    def configure(
        self, name: str, versions: Sequence[int], options: ServingOptions, scaling: Scaling
    ) -> None:
        """Write the table endpoint for the first of ``versions``, and others that may answer."""
        for version in versions:
            self.add_encoder(name, version)
        if self.fits(name, versions, options, scaling):
            return
        for file, content in self._code(name, versions).items():
            self._files.replace(f"{table_name(name)}/{versions[0]}/{file}", content)
        config = self._config(name, versions, versions[0], options, scaling)
        self._files.replace(f"{table_name(name)}/{CONFIG_FILE}", config)

    def fits(self, name: str, versions: Sequence[int], options: ServingOptions, scaling: Scaling) -> bool:
        """Return whether the endpoint can stay as it is, once it has the versions' encoders.

        In S3 it cannot: Triton copies a model when it loads it, so the process would not find them.
        """
        folder = self.folder(name)
        if folder is None or not self._files.in_place:
            return False
        files = {f"{folder}/{file}": content for file, content in self._code(name, versions).items()}
        files[CONFIG_FILE] = self._config(name, versions, folder, options, scaling)
        try:
            return all(
                self._store.get(f"{table_name(name)}/{file}") == content.encode()
                for file, content in files.items()
            )
        except ObjectMissingError:
            return False

    def folder(self, name: str) -> int | None:
        """Return the number of the folder with the code, the endpoint's own version in Triton."""
        try:
            config = self._store.get(f"{table_name(name)}/{CONFIG_FILE}").decode()
        except ObjectMissingError:
            return None
        return max(configured_versions(config))

    def add_encoder(self, name: str, version: int) -> None:
        """Copy the encoder of a version into the endpoint's files."""
        key = f"{table_name(name)}/{version}/{ENCODER}"
        if self._store.head(key) is None:
            encoder = self._read(name.removesuffix(CANDIDATE), version, ENCODER)
            self._store.put(key, json.dumps(encoder, ensure_ascii=False, allow_nan=False).encode())

    def _code(self, name: str, versions: Sequence[int]) -> dict[str, str]:
        model = name.removesuffix(CANDIDATE)
        formats = [format_of(self._read(model, version, MODEL_JSON), model) for version in versions]
        return table_code(in_process_code(formats))

    def _config(
        self, name: str, versions: Sequence[int], folder: int, options: ServingOptions, scaling: Scaling
    ) -> str:
        model = name.removesuffix(CANDIDATE)
        encoders = {v: Encoder.from_json(self._read(model, v, ENCODER)) for v in versions}
        return table_config(
            name,
            encoders,
            version=versions[0],
            folder=folder,
            scaling=scaling,
            parameters=options.parameters(name),
        )
