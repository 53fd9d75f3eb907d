"""Sign models where ``DMLS_SIGNING_KEY`` is set, and refuse others where ``DMLS_SIGNERS`` is.

A trainer signs for ``<team>.<job>@<run key>``, a deployment for ``<team>.<job>@<run key>@<version>``.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from dmls_core.errors import ObjectMissingError, PlatformError, RejectedModelError, ServingError
from dmls_core.serving.deployment.signature import (
    SIGNATURE_FILE,
    problem,
    public_key,
    public_keys,
    sign,
    signed_name,
)
from dmls_core.settings import SIGNERS, SIGNING_KEY, ProcessSettings

if TYPE_CHECKING:
    from dmls_core.serving.repository.repository import Repository
    from dmls_core.store import Store


def sign_model(folder: Path, model: str, run_key: str) -> bool:
    """Sign the files of a run's ``model/``, for ``<team>.<job>`` and the run; return False without a key.

    Raises:
        PlatformError: ``DMLS_SIGNING_KEY`` holds no private key for ECDSA.
    """
    key = ProcessSettings.from_environment().signing_key
    if key:
        (folder / SIGNATURE_FILE).write_bytes(_sign(folder, f"{model}@{run_key}", key))
    return bool(key)


def sign_version(folder: Path, model: str, run_key: str, version: int) -> bytes | None:
    """Return the signature of a run's ``model/`` folder as a version in Triton's repository.

    It keeps the files of an older version, which a trainer signed as well, from replacing those of a newer
    one. Return None where nothing is signed.

    Raises:
        PlatformError: ``DMLS_SIGNERS`` is set, but ``DMLS_SIGNING_KEY`` holds no private key for ECDSA.
    """
    settings = ProcessSettings.from_environment()
    if settings.signing_key:
        return _sign(folder, f"{model}@{run_key}@{version}", settings.signing_key)
    if settings.signers:
        raise PlatformError(
            f"cannot sign version {version} of {model}: set {SIGNING_KEY} where models are deployed"
        )
    return None


def _sign(folder: Path, name: str, key: str) -> bytes:
    try:
        return sign(folder, name, key)
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


def check_run_signature(folder: Path, model: str, run_key: str, label: str) -> None:
    """Check that a folder holds a run's ``model/`` as its trainer signed it; ``label`` names it in messages.

    Trainers of earlier releases signed for the job, and so for all of its runs.

    Raises:
        RejectedModelError: it does not; the message says what differs.
        PlatformError: ``DMLS_SIGNERS`` holds no public key for ECDSA.
    """
    _check(folder, rf"{re.escape(model)}(@{re.escape(run_key)})?", label, "train it again")


def check_version_signature(folder: Path, model: str, version: int) -> None:
    """Check that a folder holds the files that were signed as this version of ``<team>.<job>``.

    Raises:
        RejectedModelError: it does not; the message says what differs.
        PlatformError: ``DMLS_SIGNERS`` holds no public key for ECDSA.
    """
    hint = f"train it again; `dmls sign {model.replace('.', '/')}` signs versions of earlier releases"
    _check(folder, _version_name(model, version), f"{model} version {version}", hint)


def _version_name(model: str, version: int) -> str:
    """Return the pattern of the name with which a version is signed."""
    return rf"{re.escape(model)}@[^@]*@{version}"


def _check(folder: Path, name: str, label: str, hint: str) -> None:
    keys = signers()
    if keys and (reason := _problem(folder, name, keys)):
        raise RejectedModelError(f"{label} is not as a trainer signed it: {reason}; {hint}")


def _problem(folder: Path, name: str, keys: list[str]) -> str:
    if reason := problem(folder, keys):
        return reason
    signed = signed_name((folder / SIGNATURE_FILE).read_bytes())
    return "" if re.fullmatch(name, signed) else f"it was signed for {signed}"


def sign_versions(repository: Repository, model: str, key: str) -> tuple[int, ...]:
    """Sign the versions in Triton's repository that no signature names, and return them.

    Releases before signed no version, or only for the job; then this signature must be valid.

    Raises:
        PlatformError: ``key`` is no private key for ECDSA.
        ServingError: a version's files are not those that were written or signed.
    """
    signed = []
    with repository.lock(model):
        for version in repository.versions(model):
            signature = f"{model}/{version}/{SIGNATURE_FILE}"
            name = _read_name(repository.store, signature)
            if name and re.fullmatch(_version_name(model, version), name):
                continue
            content = _sign_again(repository, model, version, key, signed=name is not None)
            repository.store.put(signature, content)
            signed.append(version)
    return tuple(signed)


def _sign_again(repository: Repository, model: str, version: int, key: str, *, signed: bool) -> bytes:
    """Return the signature of a version that an earlier release wrote, and perhaps ``signed`` for the job."""
    from dmls_core.serving.repository.files import VERSION_FILE

    repository.check(model, version)
    with TemporaryDirectory(prefix="dmls-sign-") as scratch:
        folder = Path(scratch) / "model"
        folder.mkdir()
        for file in [*repository.read(model, version, VERSION_FILE)["sha256"], *[SIGNATURE_FILE] * signed]:
            repository.store.download(f"{model}/{version}/{file}", folder / file)
        content = _sign(folder, f"{model}@@{version}", key)
        if signed and (reason := _problem(folder, re.escape(model), [public_key(key), *signers()])):
            raise ServingError(f"{model} version {version} is not as a trainer signed it: {reason}")
        return content


def _read_name(store: Store, signature: str) -> str | None:
    """Return the name in a stored signature: an empty text if it is damaged, None if there is none."""
    try:
        return signed_name(store.get(signature))
    except ObjectMissingError:
        return None
    except (ValueError, KeyError, TypeError, IndexError):
        return ""
