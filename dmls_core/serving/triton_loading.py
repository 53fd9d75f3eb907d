"""Load a version of a model and its table endpoint on one Triton server."""

from __future__ import annotations

from collections.abc import Sequence

from dmls_core.errors import ServingError
from dmls_core.serving.client import TritonClient
from dmls_core.serving.model_config import table_name


def load_version(client: TritonClient, model: str, version: int) -> None:
    """Load the version of a model and of its table endpoint that the repository configures.

    The table endpoint is loaded first: its configuration names the served and the next version, so it
    switches at the moment the forest does. For a new model the forest comes first. A failure raises
    ServingError; the server still serves the previous version then.
    """
    if client.versions(model):
        client.load(table_name(model))
        client.load(model)
    else:
        client.load(model)
        client.load(table_name(model))
    if client.versions(model) != (version,):
        raise ServingError(
            f"Triton at {client.addresses['http']} loaded {model} but not version {version}: check that it "
            "reads this repository"
        )


def unload(client: TritonClient, model: str) -> None:
    """Unload a model and its table endpoint, or raise ServingError."""
    client.unload(table_name(model))
    client.unload(model)


def restore_version(clients: Sequence[TritonClient], model: str, version: int | None) -> str:
    """Load the restored configuration on each server; return the outcome in words for users."""
    failed = []
    for client in clients:
        try:
            if version is None:
                unload(client, model)
            else:
                load_version(client, model, version)
        except ServingError:
            failed.append(client.addresses["http"])
    if version is None:
        return "No other version was served"
    if failed:
        return (
            f"Version {version} is configured again, but Triton at {', '.join(failed)} has not confirmed it"
        )
    return f"Version {version} is still served"
