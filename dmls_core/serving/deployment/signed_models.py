"""Sign models where ``DMLS_SIGNING_KEY`` is set, and refuse others where ``DMLS_SIGNERS`` is."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from dmls_core.errors import PlatformError, RejectedModelError
from dmls_core.serving.deployment.signature import SIGNATURE_FILE, problem, public_keys, sign
from dmls_core.settings import SIGNERS, SIGNING_KEY, ProcessSettings

if TYPE_CHECKING:
    from dmls_core.serving.repository.repository import Repository


def sign_model(folder: Path, owner: str) -> bool:
    """Sign the files of a run's ``model/`` for ``owner``, ``<team>.<job>``; return False without a key.

    Raises:
        PlatformError: ``DMLS_SIGNING_KEY`` holds no private key for ECDSA.
    """
    key = ProcessSettings.from_environment().signing_key
    if key:
        _sign(folder, owner, key)
    return bool(key)


def _sign(folder: Path, owner: str, key: str) -> None:
    try:
        sign(folder, owner, key)
    except ValueError as error:
        raise PlatformError(f"{SIGNING_KEY}: {error}") from error


def signers() -> list[str]:
    """Return the public keys that models must be signed with; an empty list accepts any model.

    Raises:
        PlatformError: ``DMLS_SIGNERS`` holds no public key for ECDSA.
    """
    text = ProcessSettings.from_environment().signers
    return _public_keys(text) if text else []


@cache
def _public_keys(text: str) -> list[str]:
    try:
        return public_keys(text)
    except ValueError as error:
        raise PlatformError(f"{SIGNERS}: {error}") from error


def check_signature(folder: Path, owner: str, model: str) -> None:
    """Check that a folder holds a model of ``owner`` as a trainer signed it; ``model`` names it in messages.

    Raises:
        RejectedModelError: it does not; the message says what differs.
        PlatformError: ``DMLS_SIGNERS`` holds no public key for ECDSA.
    """
    keys = signers()
    if not keys:
        return
    if reason := problem(folder, owner, keys):
        raise RejectedModelError(f"{model} is not as a trainer signed it: {reason}; train it again")


def sign_versions(repository: Repository, owner: str, key: str) -> tuple[int, ...]:
    """Sign the versions of ``owner`` in Triton's repository that have no signature, and return them.

    Raises:
        PlatformError: ``key`` is no private key for ECDSA.
        ServingError: a version's files are not those that were written.
    """
    from dmls_core.serving.repository.files import VERSION_FILE

    signed = []
    with repository.lock(owner):
        for version in repository.versions(owner):
            signature = f"{owner}/{version}/{SIGNATURE_FILE}"
            if repository.store.head(signature):
                continue
            repository.check(owner, version)
            with TemporaryDirectory(prefix="dmls-sign-") as scratch:
                folder = Path(scratch) / "model"
                folder.mkdir()
                for file in repository.read(owner, version, VERSION_FILE)["sha256"]:
                    repository.store.download(f"{owner}/{version}/{file}", folder / file)
                _sign(folder, owner, key)
                repository.store.upload(signature, folder / SIGNATURE_FILE)
            signed.append(version)
    return tuple(signed)
