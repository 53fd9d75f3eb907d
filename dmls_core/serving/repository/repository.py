"""Triton's model repository, in a folder or in S3: immutable versions, and which of them is served.

::

    <repository>/<team>.<job>/config.pbtxt            what Triton serves; replaced as a whole
    <repository>/<team>.<job>/<version>/              one version; complete once its dmls.json exists
    <repository>/<team>.<job>.table/                  the table endpoint: its code, and each version's encoder
    <repository>/<team>.<job>.candidate[.table]/      a version that is not verified yet
    <repository>/<team>.<job>.challenger/             a version that is tried as a canary
    <repository>/.dmls/<team>.<job>/record.json       the verified versions
    <repository>/.dmls/<team>.<job>/options.json      serving options, for whichever version is served
    <repository>/.dmls/<team>.<job>/measured.json     the scaling chosen for each version
    <repository>/.dmls/<team>.<job>/lock              held by the publisher
    <repository>/dmls-shared/                         the process that small models share

Nothing is ever moved: every object appears as a whole, and Triton reads only versions that the configuration
names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from dmls_core.errors import NotFoundError, ObjectMissingError, PlatformError, ServingError
from dmls_core.serving.deployment.signature import SIGNATURE_FILE
from dmls_core.serving.formats.base import ServingFormat, format_of
from dmls_core.serving.formats.model_check import MODEL_JSON, read_model_json
from dmls_core.serving.repository.configurations import Configurations
from dmls_core.serving.repository.files import (
    VERSION_FILE,
    RepositoryFiles,
    checksums,
    failing,
    recorded_checksums,
)
from dmls_core.serving.repository.folder import FolderFiles
from dmls_core.serving.repository.object_store import ObjectStoreFiles
from dmls_core.serving.repository.options import (
    ScalingChoice,
    ServingOptions,
    read_options,
    read_scaling_choice,
    write_options,
    write_scaling_choice,
)
from dmls_core.serving.triton.model_config import (
    BOOKKEEPING,
    CANDIDATE,
    CHALLENGER,
    CONFIG_FILE,
    SIMPLEST,
    Scaling,
    check_model_name,
    configured_versions,
    table_name,
)
from dmls_core.store import Store, open_store

MODEL_FILES = ("encoder.json", "golden.json", MODEL_JSON)
"""Files of a version besides those that Triton reads: verification and clients read them."""

_CODE = (".py", ".pyc", ".so")
"""Endings of files that Python imports: Triton's Python backend does so from a version's folder."""

_REMEMBERED = 100
"""Verified versions that the record names, the latest ones; far fewer stay in the repository."""

_LEAST_KEPT = 2
"""The served version and the one to roll back to."""

_LOCK_SECONDS = 10.0

_SIMILAR_SIZE = 2.0
"""Factor up to which two forests are of similar size: the scaling of the one suits the other."""


class Repository:
    """A model repository in a local or shared folder, or in S3.

    Methods that change a model are called with its ``lock`` held.
    """

    def __init__(self, url: str, *, store: Store | None = None, sharing: bool = True) -> None:
        """Bind to a folder or ``s3://bucket/prefix``; nothing is read or written yet.

        ``store`` has its own credentials; by default it is opened from ``url``. ``sharing``: whether small
        models may share a process.

        Raises:
            PlatformError: ``url`` is neither.
        """
        if not url:
            raise PlatformError(
                "no Triton model repository is set: set DMLS_TRITON_REPOSITORY to a folder or s3://bucket/prefix"
            )
        if "://" in url.removeprefix("s3://").removeprefix("file://"):
            raise PlatformError(
                f"{url} is not a repository URL: give a folder or s3://bucket/prefix "
                "(and an S3 service of your own in AWS_ENDPOINT_URL)"
            )
        self.store = store or open_store(url)
        self._files: RepositoryFiles = (ObjectStoreFiles if "://" in self.store.url else FolderFiles)(
            self.store
        )
        self._configurations = Configurations(self.store, self._files, self.read, sharing=sharing)

    @property
    def root(self) -> Path:
        """The folder of a repository that is not in S3."""
        return Path(self.store.url)

    @contextmanager
    def lock(self, name: str, *, timeout: float = _LOCK_SECONDS) -> Iterator[None]:
        """Keep other publishers of this model out.

        Raises:
            BusyError: another publisher held the lock for ``timeout`` seconds; the message names it.
        """
        with self._files.lock(name, timeout):
            yield

    def versions(self, name: str) -> tuple[int, ...]:
        """Return the numbers of a model's complete versions, ascending."""
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

    def add(self, name: str, folder: Path, signature: Callable[[int], bytes | None] = lambda _: None) -> int:
        """Copy a run's ``model/`` folder into a new version, and return its number.

        The same files again are the same version, so that a repeated step adds nothing. A number is never
        used for other files again. ``signature`` returns that of a version. A missing file, or a copy that
        differs, raises ServingError.
        """
        with failing(f"write a version of {name}"):
            serving = format_of(read_model_json(folder, name), name)
            sums = checksums(folder, (*serving.files, *MODEL_FILES))
            if code := [file for file in sums if file.endswith(_CODE)]:
                raise ServingError(f"{name} holds code, which Triton might import: {', '.join(code)}")
            versions = self.versions(name)
            same = (version for version in reversed(versions) if self._sums(name, version) == sums)
            number = next(same, None) or max((0, *versions, *self.verified(name))) + 1
            signed = signature(number)
            for file in sums if number not in versions else ():
                self._files.copy(folder / file, f"{name}/{number}/{file}", sums[file])
            if signed:
                self.store.put(f"{name}/{number}/{SIGNATURE_FILE}", signed)
            record = json.dumps({"schema": 1, "version": number, "sha256": sums})
            self.store.put(f"{name}/{number}/{VERSION_FILE}", record.encode())
        return number

    def check(self, name: str, version: int) -> None:
        """Compare a version's files with the checksums recorded when they were written.

        A file that is missing or has changed raises ServingError, a missing version NotFoundError.
        """
        for file, expected in self._sums(name, version).items():
            self._files.check(f"{name}/{version}/{file}", expected)

    def check_copy(self, name: str, version: int, suffix: str = "") -> None:
        """Compare the files that Triton reads, or the candidate's or challenger's copies; see ``check``."""
        sums = self._sums(name, version)
        for file in self.format(name, version).files:
            self._files.check(f"{name}{suffix}/{version}/{file}", sums[file])

    def format(self, name: str, version: int) -> ServingFormat:
        """Return the serving format of a version; ``UserError``: no installed package serves it."""
        return self._configurations.format(name, version)

    def size(self, name: str, version: int) -> int:
        """Return the size of a version's model in bytes; 0: a file is missing."""
        with failing(f"read version {version} of {name}"):
            return self._configurations.size(name, version)

    def _copy_model(self, name: str, version: int, folder: Path, suffix: str) -> None:
        """Copy the files that Triton reads from ``folder`` to the candidate or challenger."""
        sums = self._sums(name, version)
        for file in self.format(name, version).files:
            self._files.copy(folder / file, f"{name}{suffix}/{version}/{file}", sums[file])

    def local_copy(self, name: str, version: int) -> AbstractContextManager[Path]:
        """Return a folder on this machine with the version's files; it lasts for a ``with`` block."""
        return self._files.local_copy(name, version)

    def stage(self, name: str, version: int, folder: Path) -> None:
        """Write the version that ``add`` made from ``folder`` under the candidate's name.

        A candidate that takes over the scaling of the served version is called through the served table
        endpoint; another one has its own, see ``has_table``.
        """
        self._files.check_lock(name)
        candidate = check_model_name(name) + CANDIDATE
        with failing(f"write the candidate of {name}"):
            if tuple(self._folders(candidate)) not in {(), (version,)}:
                self.unstage(name)
            self._copy_model(name, version, folder, CANDIDATE)
        choice = None
        if self.shares(name, version):
            shared = ScalingChoice(reason="small models share one process")
            write_scaling_choice(self.store, name, version, shared, self.versions(name))
        else:
            choice = self._inherited_choice(name, version)
        if choice is None:
            self.configure_candidate(name, version, SIMPLEST)
            return
        write_scaling_choice(self.store, name, version, choice, self.versions(name))
        with failing(f"configure the candidate of {name}"):
            self._configurations.tables.add_encoder(name, version)
            self._configurations.write_model(candidate, version, choice.scaling)

    def configure_candidate(self, name: str, version: int, scaling: Scaling) -> None:
        """Write the configurations of a candidate and its table endpoint; Triton reads them when it loads."""
        self._files.check_lock(name)
        with failing(f"configure the candidate of {name}"):
            share = self.shares(name, version)
            self._configurations.write(name + CANDIDATE, [version], ServingOptions(), scaling, share=share)

    def shares(self, name: str, version: int) -> bool:
        """Return whether a version is to be served by the process that small models share."""
        with failing(f"read version {version} of {name}"):
            return self._configurations.may_share(name, version, replace(self.options(name), canary=None))

    def has_table(self, name: str) -> bool:
        """Return whether a model has a table endpoint of its own; a candidate need not have one."""
        with failing(f"read the configuration of {name}"):
            return self._configurations.tables.folder(name) is not None

    def _inherited_choice(self, name: str, version: int) -> ScalingChoice | None:
        """Return the scaling of the served version if a candidate may take it over.

        That is so if the served table endpoint stays as it is, and the forest is of about the same size.
        """
        served = self.serving(name)
        if served is None or served not in self.versions(name):
            return None
        choice = read_scaling_choice(self.store, name, served)
        options = replace(self.options(name), canary=None)
        with failing(f"read the versions of {name}"):
            sizes = sorted(self.size(name, v) for v in (served, version))
            fits = self._configurations.tables.fits(name, [version, served], options, choice.scaling)
        if not fits or sizes[-1] > _SIMILAR_SIZE * sizes[0]:
            return None
        reason = f"as version {served}, with the same columns and a forest of similar size"
        return ScalingChoice(choice.scaling, reason)

    def staged(self, name: str) -> int | None:
        """Return the candidate's version, if there is a candidate."""
        return self.serving(check_model_name(name) + CANDIDATE)

    def unstage(self, name: str) -> None:
        """Remove the candidate's files."""
        self._files.check_lock(name)
        with failing(f"remove the candidate of {name}"):
            candidate = check_model_name(name) + CANDIDATE
            for part in (table_name(candidate), candidate):
                self._files.remove(part)

    def add_challenger(self, name: str, version: int, folder: Path) -> None:
        """Write a version's forest under the challenger's name."""
        challenger = check_model_name(name) + CHALLENGER
        with failing(f"write the challenger of {name}"):
            self._copy_model(name, version, folder, CHALLENGER)
            self._configurations.write_model(challenger, version, SIMPLEST)

    def remove_challenger(self, name: str) -> None:
        """Remove the challenger's files."""
        with failing(f"remove the challenger of {name}"):
            self._files.remove(check_model_name(name) + CHALLENGER)

    def serving(self, name: str) -> int | None:
        """Return the version that the forest's ``config.pbtxt`` names, if there is one."""
        with failing(f"read the configuration of {name}"):
            try:
                text = self.store.get(f"{check_model_name(name)}/{CONFIG_FILE}").decode()
            except ObjectMissingError:
                return None
        return max(configured_versions(text))

    def serve(self, name: str, version: int | None, *, previous: int | None = None) -> None:
        """Write the configurations that serve ``version``, or remove them; Triton reads them when it loads.

        ``previous`` is served until Triton has loaded the new version: the table endpoint knows both, and so
        switches with the forest.
        """
        self._files.check_lock(name)
        with failing(f"configure {name}"):
            if version is None:
                for part in (name, table_name(name)):
                    self.store.delete(f"{part}/{CONFIG_FILE}")
                return
            present = self.versions(name)
            options = self.options(name)
            if options.canary and options.canary.version in (version, previous):
                options = replace(options, canary=None)  # it is the served version, or was until now
            others = (previous, options.canary and options.canary.version)
            numbers = [version, *(number for number in others if number in present)]
            scaling = read_scaling_choice(self.store, name, version).scaling
            share = self._configurations.may_share(name, version, options)
            self._configurations.write(name, numbers, options, scaling, share=share)

    def options(self, name: str) -> ServingOptions:
        """Return the model's serving options."""
        with failing(f"read the options of {name}"):
            return read_options(self.store, f"{BOOKKEEPING}/{check_model_name(name)}/options.json")

    def set_options(self, name: str, options: ServingOptions) -> None:
        """Record the model's serving options; ``serve`` writes them into the configurations."""
        with failing(f"write the options of {name}"):
            write_options(self.store, f"{BOOKKEEPING}/{check_model_name(name)}/options.json", options)

    def verified(self, name: str) -> tuple[int, ...]:
        """Return the versions that passed verification under the model's own name, the latest last."""
        try:
            return tuple(json.loads(self.store.get(self._record(name)))["verified"])
        except ObjectMissingError:
            return ()

    def verified_versions(self, name: str) -> tuple[int, ...]:
        """Return the verified versions that are still in the repository, ascending."""
        there = self.versions(name)
        return tuple(sorted(version for version in self.verified(name) if version in there))

    def previous(self, name: str, version: int) -> int | None:
        """Return the version that a rollback from ``version`` goes to: the last other verified one."""
        there = self.versions(name)
        return next((v for v in reversed(self.verified(name)) if v != version and v in there), None)

    def before(self, name: str, version: int) -> tuple[int | None, int | None]:
        """Return the version that a rollback from ``version`` goes to, and the one that is served until then.

        After an interruption the configuration may name a version that is not recorded as verified.
        """
        previous, now = self.previous(name, version), self.serving(name)
        return previous, now if now in self.verified(name) else previous

    def confirm(self, name: str, version: int) -> None:
        """Record that ``version`` passed verification."""
        self._files.check_lock(name)
        others = [v for v in self.verified(name) if v != version]
        verified = [*others[-_REMEMBERED + 1 :], version]
        with failing(f"write the record of {name}"):
            self.store.put(self._record(name), json.dumps({"schema": 1, "verified": verified}).encode())

    def prune(self, name: str, keep: int) -> tuple[int, ...]:
        """Remove all versions but the served one and the last ``keep`` verified ones; return the removed."""
        there = set(self._folders(name)) | set(self._folders(table_name(name)))
        verified = [v for v in self.verified(name) if v in there]
        canary = self.options(name).canary
        # The highest number stays: the table endpoint's process must not meet it again with other content.
        retained = {
            self.serving(name),
            canary and canary.version,
            *verified[-max(keep, _LEAST_KEPT) :],
            max(there, default=None),
        }
        gone = tuple(sorted(there - retained))
        with failing(f"remove old versions of {name}"):
            code = self._configurations.tables.folder(name)
            for version in gone:
                # Without its dmls.json it is no version any more, even if the rest of this is interrupted.
                self.store.delete(f"{name}/{version}/{VERSION_FILE}")
                self._configurations.free(name, version)
                self._files.remove(f"{name}/{version}")
                if version != code:
                    self._files.remove(f"{table_name(name)}/{version}")
        return gone

    def _sums(self, name: str, version: int) -> dict[str, str]:
        return recorded_checksums(self.read(name, version, VERSION_FILE), name, version)

    def _folders(self, name: str) -> dict[int, set[str]]:
        with failing(f"list the versions of {name}"):
            return self._files.numbered_folders(name)

    def _record(self, name: str) -> str:
        return f"{BOOKKEEPING}/{check_model_name(name)}/record.json"
