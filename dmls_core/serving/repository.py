"""Triton's model repository in a folder: immutable versions, and which of them is served.

::

    <repository>/<team>.<job>/config.pbtxt        what Triton serves; replaced whole
    <repository>/<team>.<job>/<version>/          one version, never changed once it is there
    <repository>/.dmls/<team>.<job>/record.json   the versions that were verified
    <repository>/.dmls/<team>.<job>/lock          held by whoever publishes
    <repository>/.dmls/<team>.<job>/staging/      the version being written

Bookkeeping stays out of the model's own folder: Triton reloads every version when any other file in
there changes.
"""

from __future__ import annotations

import fcntl
import json
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dmls_core.errors import NotFoundError, PlatformError, ServingError
from dmls_core.serving.config import (
    CHECKPOINT_FILE,
    CONFIG_FILE,
    InstanceKind,
    ModelShape,
    check_model_name,
    configured_versions,
    fil_config,
)
from dmls_core.serving.files import copy_synced, sha256, sync_folder, write_synced

MODEL_FILES = (CHECKPOINT_FILE, "encoder.json", "golden.json", "model.json")
"""What a version holds: Triton reads the checkpoint alone, verification and clients read the others."""

BOOKKEEPING = ".dmls"
VERSION_FILE = "dmls.json"
KEPT_VERIFIED = 100
"""Verified versions that are remembered, the latest ones."""


class Repository:
    """A model repository in a local or shared folder.

    What changes a model (``add``, ``serve``, ``confirm``) is called while its ``lock`` is held.
    """

    def __init__(self, url: str, *, kind: InstanceKind = "KIND_AUTO") -> None:
        """Bind to the folder ``url``; ``kind`` is written into every configuration.

        Raises:
            PlatformError: ``url`` is empty or not a folder's path.
        """
        if not url:
            raise PlatformError("no Triton model repository is set: set DMLS_TRITON_REPOSITORY to its folder")
        if "://" in url:
            raise PlatformError(f"{url} is no folder: other Triton repositories are not available yet")
        self.root = Path(url)
        self.kind: InstanceKind = kind

    @contextmanager
    def lock(self, name: str, *, timeout: float = 300.0) -> Iterator[None]:
        """Keep other publishers of this model out.

        Raises:
            ServingError: another one held the lock for ``timeout`` seconds.
        """
        with _failing(f"lock {name}"):
            self._bookkeeping(name).mkdir(parents=True, exist_ok=True)
            file = (self._bookkeeping(name) / "lock").open("a")
        with file:
            deadline = time.monotonic() + timeout
            while not _try_lock(file.fileno()):
                if time.monotonic() > deadline:
                    raise ServingError(
                        f"{name} has been held by another publisher for {timeout:.0f} s: try again later"
                    )
                time.sleep(0.05)
            yield

    def versions(self, name: str) -> tuple[int, ...]:
        """Return the numbers of a model's versions in the repository, ascending."""
        folder = self._model(name)
        numbers = (path.name for path in folder.iterdir()) if folder.is_dir() else ()
        return tuple(sorted(int(number) for number in numbers if re.fullmatch(r"[1-9][0-9]*", number)))

    def read(self, name: str, version: int, file: str) -> dict[str, Any]:
        """Return the object in one of a version's JSON files.

        Raises:
            NotFoundError: the repository has no such version.
            ServingError: the file is damaged.
        """
        path = self._model(name) / str(version) / file
        try:
            content: dict[str, Any] = json.loads(path.read_bytes())
        except FileNotFoundError:
            raise NotFoundError(f"the Triton repository has no {path}") from None
        except ValueError as error:
            raise ServingError(f"{path} is damaged: {error}") from error
        return content

    def add(self, name: str, folder: Path) -> int:
        """Copy a run's ``model/`` folder into a new version.

        The same content again is the same version, so that a repeated step adds nothing.

        Returns:
            The version's number, which no other content of this model has had.

        Raises:
            ServingError: a file is missing, or could not be copied whole.
        """
        versions = self.versions(name)
        with _failing(f"write a version of {name}"):
            sums = {file: sha256(folder / file) for file in MODEL_FILES}
            for version in reversed(versions):
                if self._sums(name, version) == sums:
                    return version
            number = max((0, *versions, *self.verified(name))) + 1
            stage = self._bookkeeping(name) / "staging"
            shutil.rmtree(stage, ignore_errors=True)  # what a killed publisher left
            stage.mkdir()
            for file, expected in sums.items():
                copy_synced(folder / file, stage / file)
                if sha256(stage / file) != expected:
                    raise ServingError(f"{file} of {name} was not copied whole to {stage}")
            write_synced(stage / VERSION_FILE, json.dumps({"schema": 1, "version": number, "sha256": sums}))
            sync_folder(stage)
            self._model(name).mkdir(exist_ok=True)
            stage.rename(self._model(name) / str(number))
            sync_folder(self._model(name))
        return number

    def serving(self, name: str) -> int | None:
        """Return the version that ``config.pbtxt`` names, if there is one."""
        try:
            text = (self._model(name) / CONFIG_FILE).read_text()
        except FileNotFoundError:
            return None
        return max(configured_versions(text))

    def serve(self, name: str, version: int | None) -> None:
        """Write the configuration that serves ``version``, or remove it; Triton must be told to load."""
        target = self._model(name) / CONFIG_FILE
        with _failing(f"write {target}"):
            if version is None:
                target.unlink(missing_ok=True)
                return
            text = fil_config(name, self._shape(name, version), versions=[version], kind=self.kind)
            if not target.is_file() or target.read_text() != text:
                self._replace(target, text, self._bookkeeping(name))

    def verified(self, name: str) -> tuple[int, ...]:
        """Return the versions that proved themselves through the live endpoint, the latest last."""
        path = self._bookkeeping(name) / "record.json"
        return tuple(json.loads(path.read_bytes())["verified"]) if path.is_file() else ()

    def previous(self, name: str, version: int) -> int | None:
        """Return the version to go back to from ``version``: the last other one that was verified."""
        return next((v for v in reversed(self.verified(name)) if v != version), None)

    def confirm(self, name: str, version: int) -> None:
        """Record that ``version`` proved itself."""
        others = [v for v in self.verified(name) if v != version]
        verified = [*others[-KEPT_VERIFIED + 1 :], version]
        folder = self._bookkeeping(name)
        with _failing(f"write the record of {name}"):
            self._replace(folder / "record.json", json.dumps({"schema": 1, "verified": verified}), folder)

    def _shape(self, name: str, version: int) -> ModelShape:
        model: Mapping[str, Any] = self.read(name, version, "model.json")
        classifier = model["task"] == "classification"
        return ModelShape(model["n_features"], model["n_outputs"] if classifier else 1, classifier)

    def _sums(self, name: str, version: int) -> dict[str, str]:
        try:
            sums: dict[str, str] = self.read(name, version, VERSION_FILE)["sha256"]
        except NotFoundError:
            return {}
        return sums

    def _model(self, name: str) -> Path:
        return self.root / check_model_name(name)

    def _bookkeeping(self, name: str) -> Path:
        return self.root / BOOKKEEPING / check_model_name(name)

    @staticmethod
    def _replace(target: Path, text: str, scratch: Path) -> None:
        temporary = scratch / f"{target.name}.new"
        write_synced(temporary, text)
        temporary.replace(target)
        sync_folder(target.parent)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _failing(doing: str) -> Iterator[None]:
    """Turn what the file system says (full, gone, read-only) into an error that names the step."""
    try:
        yield
    except OSError as error:
        raise ServingError(f"cannot {doing}: {error}") from error
