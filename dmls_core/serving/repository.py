"""Triton's model repository, in a folder or in S3: immutable versions, and which of them is served.

::

    <repository>/<team>.<job>/config.pbtxt            what Triton serves; replaced whole
    <repository>/<team>.<job>/<version>/              one version; it counts once its dmls.json is there
    <repository>/<team>.<job>.table/                  the table endpoint, likewise
    <repository>/<team>.<job>.candidate[.table]/      a version that is yet to prove itself
    <repository>/.dmls/<team>.<job>/record.json       the versions that were verified
    <repository>/.dmls/<team>.<job>/options.json      how it is served, whichever version that is
    <repository>/.dmls/<team>.<job>/measured.json     how each version answers several requests at once
    <repository>/.dmls/<team>.<job>/lock              held by whoever publishes

Nothing is ever moved: every object appears whole, and Triton touches no version that the configuration does
not name.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from dmls_core.data.encoder import Encoder
from dmls_core.errors import NotFoundError, ObjectMissingError, PlatformError, ServingError
from dmls_core.serving.locks import Lease, file_lock, lease
from dmls_core.serving.model_config import (
    BOOKKEEPING,
    CANDIDATE,
    CHALLENGER,
    CHECKPOINT_FILE,
    CONFIG_FILE,
    SIMPLEST,
    InstanceKind,
    ModelShape,
    Scaling,
    check_model_name,
    configured_versions,
    fil_config,
    table_config,
    table_files,
    table_name,
)
from dmls_core.serving.options import ServingOptions, choice_of, read_options, write_options
from dmls_core.serving.repository_files import failing, numbered_folders, sha256
from dmls_core.store import Store, open_store
from dmls_core.store.base import file_sha256
from dmls_core.store.local import LocalStore

MODEL_FILES = (CHECKPOINT_FILE, "encoder.json", "golden.json", "model.json")
"""What a version holds: Triton reads the checkpoint alone, verification and clients read the others."""

VERSION_FILE = "dmls.json"
KEPT_VERIFIED = 100
"""Verified versions that are remembered, the latest ones; far fewer are kept."""

LEAST_KEPT = 2
"""The version that is served and the one to go back to."""

LOCK_SECONDS = 10.0
Encoders = Mapping[int, Encoder]


class Repository:
    """A model repository in a local or shared folder, or in S3.

    What changes a model is called while its ``lock`` is held.
    """

    def __init__(self, url: str, *, kind: InstanceKind = "KIND_AUTO", store: Store | None = None) -> None:
        """Bind to a repository; nothing is read or written yet.

        Args:
            url: a folder, or ``s3://bucket/prefix``.
            kind: written into every forest's configuration.
            store: the repository's store, with credentials of its own; opened from ``url`` by default.

        Raises:
            PlatformError: ``url`` is neither.
        """
        if not url:
            raise PlatformError(
                "no Triton model repository is set: set DMLS_TRITON_REPOSITORY to a folder or s3://bucket/prefix"
            )
        if "://" in url.removeprefix("s3://").removeprefix("file://"):
            raise PlatformError(
                f"{url} is no repository: give a folder or s3://bucket/prefix "
                "(and an S3 service of your own in AWS_ENDPOINT_URL)"
            )
        self.store = store or open_store(url)
        self.kind: InstanceKind = kind
        self._leases: dict[str, Lease] = {}

    @property
    def root(self) -> Path:
        """The folder of a repository that is one."""
        return Path(self.store.url)

    @contextmanager
    def lock(self, name: str, *, timeout: float = LOCK_SECONDS) -> Iterator[None]:
        """Keep other publishers of this model out.

        Raises:
            BusyError: another one held the lock for ``timeout`` seconds; the message says which.
        """
        key = f"{BOOKKEEPING}/{check_model_name(name)}/lock"
        if not isinstance(self.store, LocalStore):
            with failing(f"lock {name}"), lease(self.store, key, name, timeout) as self._leases[name]:
                try:
                    yield
                finally:
                    del self._leases[name]
            return
        path = self.store.root / key
        with failing(f"lock {name}"):
            path.parent.mkdir(parents=True, exist_ok=True)
        with file_lock(path, name, timeout):
            yield

    def versions(self, name: str) -> tuple[int, ...]:
        """Return the numbers of a model's whole versions in the repository, ascending."""
        return tuple(v for v, files in sorted(self._folders(name).items()) if VERSION_FILE in files)

    def read(self, name: str, version: int, file: str) -> dict[str, Any]:
        """Return the object in one of a version's JSON files.

        Raises:
            NotFoundError: the repository has no such version.
            ServingError: the file is damaged.
        """
        key = f"{check_model_name(name)}/{version}/{file}"
        try:
            with failing(f"read {key}"):
                content: dict[str, Any] = json.loads(self.store.get(key))
        except ObjectMissingError:
            raise NotFoundError(f"the Triton repository has no {self.store.url}/{key}") from None
        except ValueError as error:
            raise ServingError(f"{self.store.url}/{key} is damaged: {error}") from error
        return content

    def add(self, name: str, folder: Path) -> int:
        """Copy a run's ``model/`` folder into a new version.

        The same content again is the same version, so that a repeated step adds nothing.

        Returns:
            The version's number, which no other content of this model has had.

        Raises:
            ServingError: a file is missing, or could not be copied whole.
        """
        with failing(f"write a version of {name}"):
            sums = {file: sha256(folder / file) for file in MODEL_FILES}
            versions = self.versions(name)
            for version in reversed(versions):
                if self._sums(name, version) == sums:
                    return version
            number = max((0, *versions, *self.verified(name))) + 1
            for file in sums:
                self._copy(folder / file, f"{name}/{number}/{file}", sums[file])
            about = {"schema": 1, "version": number, "sha256": sums}
            self.store.put(f"{name}/{number}/{VERSION_FILE}", json.dumps(about).encode())
        return number

    def check(self, name: str, version: int) -> None:
        """Hold a version's files against the checksums that they were written with.

        Raises:
            NotFoundError: the repository has no such version.
            ServingError: a file is missing or has changed.
        """
        for file, expected in self.read(name, version, VERSION_FILE)["sha256"].items():
            self._check(f"{name}/{version}/{file}", expected)

    def stage(self, name: str, version: int, folder: Path) -> str:
        """Write the candidate of a model: the version under a name of its own, nothing else.

        Args:
            name: ``<team>.<job>``.
            version: a version that ``add`` gave a number.
            folder: the ``model/`` folder that it was made from.

        Returns:
            The candidate's name.
        """
        self._check_lease(name)
        candidate = check_model_name(name) + CANDIDATE
        with failing(f"write the candidate of {name}"):
            if tuple(self._folders(candidate)) not in {(), (version,)}:
                self.unstage(name)
            expected = self._sums(name, version)[CHECKPOINT_FILE]
            self._copy(folder / CHECKPOINT_FILE, f"{candidate}/{version}/{CHECKPOINT_FILE}", expected)
            self._write_table(candidate, version, self.read(name, version, "encoder.json"))
        self.configure_candidate(name, version, SIMPLEST)
        return candidate

    def configure_candidate(self, name: str, version: int, scaling: Scaling) -> None:
        """Write how the candidate answers several requests at once; Triton must be told to load."""
        self._check_lease(name)
        with failing(f"configure the candidate of {name}"):
            encoders = {version: self._encoder(name, version)}
            self._configure(name + CANDIDATE, version, encoders, ServingOptions(), scaling)

    def staged(self, name: str) -> int | None:
        """Return the version that is the candidate, if there is one."""
        return self.serving(check_model_name(name) + CANDIDATE)

    def unstage(self, name: str) -> None:
        """Remove the candidate's files."""
        self._check_lease(name)
        with failing(f"remove the candidate of {name}"):
            candidate = check_model_name(name) + CANDIDATE
            for part in (table_name(candidate), candidate):
                self._remove(part)

    def remove_challenger(self, name: str) -> None:
        """Remove the challenger's files."""
        with failing(f"remove the challenger of {name}"):
            self._remove(check_model_name(name) + CHALLENGER)

    def add_challenger(self, name: str, version: int, folder: Path) -> None:
        """Write a version under the challenger's name: the forest alone, nothing else."""
        challenger = check_model_name(name) + CHALLENGER
        with failing(f"write the challenger of {name}"):
            expected = self._sums(name, version)[CHECKPOINT_FILE]
            self._copy(folder / CHECKPOINT_FILE, f"{challenger}/{version}/{CHECKPOINT_FILE}", expected)
            config = fil_config(challenger, self._shape(name, version), versions=[version], kind=self.kind)
            self._replace(f"{challenger}/{CONFIG_FILE}", config)

    def serving(self, name: str) -> int | None:
        """Return the version that the forest's ``config.pbtxt`` names, if there is one."""
        with failing(f"read the configuration of {name}"):
            try:
                text = self.store.get(f"{check_model_name(name)}/{CONFIG_FILE}").decode()
            except ObjectMissingError:
                return None
        return max(configured_versions(text))

    def serve(self, name: str, version: int | None, *, beside: int | None = None) -> None:
        """Write the configurations that serve ``version``, or remove them; Triton must be told to load.

        Args:
            name: ``<team>.<job>``.
            version: what is to be served.
            beside: the version that is served until Triton has loaded the other one: the table endpoint
                knows both, and so changes with the forest.
        """
        self._check_lease(name)
        with failing(f"configure {name}"):
            if version is None:
                for part in (name, table_name(name)):
                    self.store.delete(f"{part}/{CONFIG_FILE}")
                return
            encoders = {}
            known = self.versions(name)
            options = self.options(name)
            if options.canary and options.canary.version in (version, beside):
                options = replace(options, canary=None)  # it is, or was until now, what is served
            for number in (version, beside, options.canary and options.canary.version):
                if number in known:
                    self._write_table(name, number, self.read(name, number, "encoder.json"))
                    encoders[number] = self._encoder(name, number)
            self._configure(name, version, encoders, options, choice_of(self.store, name, version).scaling)

    def options(self, name: str) -> ServingOptions:
        """Return how a model is served, whichever version of it that is."""
        with failing(f"read the options of {name}"):
            return read_options(self.store, f"{BOOKKEEPING}/{check_model_name(name)}/options.json")

    def set_options(self, name: str, options: ServingOptions) -> None:
        """Note how a model is served; ``serve`` writes it into the configurations."""
        with failing(f"write the options of {name}"):
            write_options(self.store, f"{BOOKKEEPING}/{check_model_name(name)}/options.json", options)

    def verified(self, name: str) -> tuple[int, ...]:
        """Return the versions that proved themselves through the live endpoint, the latest last."""
        try:
            return tuple(json.loads(self.store.get(self._record(name)))["verified"])
        except ObjectMissingError:
            return ()

    def previous(self, name: str, version: int) -> int | None:
        """Return the version to go back to from ``version``: the last other one that was verified."""
        there = self.versions(name)
        return next((v for v in reversed(self.verified(name)) if v != version and v in there), None)

    def confirm(self, name: str, version: int) -> None:
        """Record that ``version`` proved itself."""
        self._check_lease(name)
        others = [v for v in self.verified(name) if v != version]
        verified = [*others[-KEPT_VERIFIED + 1 :], version]
        with failing(f"write the record of {name}"):
            content = json.dumps({"schema": 1, "verified": verified})
            self.store.put(self._record(name), content.encode())

    def prune(self, name: str, keep: int) -> tuple[int, ...]:
        """Remove old versions: all but the last ``keep`` that were verified, and never what is served.

        Returns:
            The versions that were removed.
        """
        there = set(self._folders(name)) | set(self._folders(table_name(name)))
        verified = [v for v in self.verified(name) if v in there]
        canary = self.options(name).canary
        kept = {self.serving(name), canary and canary.version, *verified[-max(keep, LEAST_KEPT) :]}
        gone = tuple(sorted(there - kept))
        with failing(f"remove old versions of {name}"):
            for version in gone:
                # Without its dmls.json it is no version any more, whatever interrupts what follows.
                self.store.delete(f"{name}/{version}/{VERSION_FILE}")
                for part in (name, table_name(name)):
                    self._remove(f"{part}/{version}")
        return gone

    def _configure(
        self, name: str, version: int, encoders: Encoders, options: ServingOptions, scaling: Scaling
    ) -> None:
        """Write both configurations, the forest's last."""
        shape = self._shape(name.removesuffix(CANDIDATE), version)
        parameters = options.parameters(name)
        table = table_config(name, encoders, version=version, scaling=scaling, parameters=parameters)
        forest = fil_config(name, shape, versions=[version], kind=self.kind, scaling=scaling)
        self._replace(f"{table_name(name)}/{CONFIG_FILE}", table)
        self._replace(f"{name}/{CONFIG_FILE}", forest)

    def _replace(self, key: str, text: str) -> None:
        """Write a configuration so that Triton notices.

        It compares times, which S3 tells in whole seconds: a second change within one would stay unseen.
        """
        content = text.encode()
        before = self.store.head(key)
        if before is not None and self.store.get(key) == content:
            return
        self.store.put(key, content)
        while before is not None and (now := self.store.head(key)) and now.modified <= before.modified:
            time.sleep(0.2)
            self.store.put(key, content)

    def _write_table(self, name: str, version: int, encoder: Mapping[str, Any]) -> None:
        for file, content in table_files(encoder).items():
            key = f"{table_name(name)}/{version}/{file}"
            if self.store.head(key) is None:
                self.store.put(key, content.encode())

    def _copy(self, source: Path, key: str, expected: str) -> None:
        """Copy a file, and read it back."""
        self.store.upload(key, source)
        self._check(key, expected)

    def _remove(self, folder: str) -> None:
        """Remove what is in a folder, its configuration first: then Triton leaves the rest alone."""
        if isinstance(self.store, LocalStore):
            self.store.delete(f"{folder}/{CONFIG_FILE}")
            shutil.rmtree(self.store.root / folder, ignore_errors=True)
            return
        keys = [info.key for info in self.store.list(f"{folder}/")]
        for key in sorted(keys, key=lambda key: not key.endswith(f"/{CONFIG_FILE}")):
            self.store.delete(key)

    def _check(self, key: str, expected: str) -> None:
        with failing(f"read {self.store.url}/{key}"):
            try:
                with self.store.open(key) as stream:
                    found = file_sha256(stream)
            except ObjectMissingError:
                raise ServingError(f"{self.store.url}/{key} is missing") from None
        if found != expected:
            raise ServingError(
                f"{self.store.url}/{key} is damaged: its SHA-256 is {found}, "
                f"expected {expected}; deploy it again"
            )

    def _encoder(self, name: str, version: int) -> Encoder:
        return Encoder.from_json(self.read(name, version, "encoder.json"))

    def _shape(self, name: str, version: int) -> ModelShape:
        model: Mapping[str, Any] = self.read(name, version, "model.json")
        classifier = model["task"] == "classification"
        return ModelShape(model["n_features"], model["n_outputs"] if classifier else 1, classifier)

    def _sums(self, name: str, version: int) -> dict[str, str]:
        return dict(self.read(name, version, VERSION_FILE)["sha256"])

    def _folders(self, name: str) -> dict[int, set[str]]:
        with failing(f"list the versions of {name}"):
            return numbered_folders(self.store, name)

    def _check_lease(self, name: str) -> None:
        """Stop a publisher that is not the only one any more, before it changes what is served."""
        if name in self._leases:
            self._leases[name].check(name)

    def _record(self, name: str) -> str:
        return f"{BOOKKEEPING}/{check_model_name(name)}/record.json"
