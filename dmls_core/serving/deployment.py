"""Put a candidate behind Triton, and go back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dmls_core.errors import ServingError
from dmls_core.serving.client import TritonClient
from dmls_core.serving.repository import Repository


@dataclass(frozen=True, slots=True)
class Deployment:
    """A version that Triton has loaded and that is yet to be verified.

    Attributes:
        model: ``<team>.<job>``.
        version: the version in the Triton repository.
        previous: the verified version to go back to, if there is one.
    """

    model: str
    version: int
    previous: int | None


def deploy(repository: Repository, client: TritonClient, model: str, folder: Path) -> Deployment:
    """Publish a run's ``model/`` folder as a version of ``model`` and have Triton load it.

    Repeating it, after whatever interruption, ends in the same version.

    Args:
        repository: where Triton reads models from.
        client: the Triton server.
        model: ``<team>.<job>``.
        folder: holds ``checkpoint.tl``, ``encoder.json``, ``golden.json`` and ``model.json``.

    Raises:
        ServingError: the version could not be written or loaded; what was served before still is.
    """
    with repository.lock(model):
        version = repository.add(model, folder)
        previous = repository.previous(model, version)
        before = repository.serving(model)
        repository.serve(model, version)
        try:
            _load(client, model, version)
        except ServingError as error:
            # A repeat after an interruption finds this very version in the configuration already.
            back = previous if before == version else before
            repository.serve(model, back)
            raise ServingError(f"{error}. {_restored(client, model, back)}") from error
    return Deployment(model, version, previous)


def rollback_to(repository: Repository, client: TritonClient, model: str, version: int | None) -> None:
    """Have Triton serve ``version`` again; ``None`` (nothing was ever verified) takes the model down.

    Raises:
        ServingError: the version is gone, or Triton could not load it.
    """
    with repository.lock(model):
        repository.serve(model, version)
        if version is None:
            client.unload(model)
            return
        _load(client, model, version)
        repository.confirm(model, version)


def _load(client: TritonClient, model: str, version: int) -> None:
    client.load(model)
    if not client.ready(model, version):
        raise ServingError(
            f"Triton loaded {model} but not version {version}: does it read the repository written here?"
        )


def _restored(client: TritonClient, model: str, version: int | None) -> str:
    """Have Triton read the restored configuration; say how that went."""
    if version is None:
        return "Nothing else was served"
    try:
        _load(client, model, version)
    except ServingError:
        return f"Version {version} is configured again but Triton has not confirmed it"
    return f"Version {version} is still served"
