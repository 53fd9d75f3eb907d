"""Have one Triton server follow the repository's configuration, and say what became of it."""

from __future__ import annotations

from collections.abc import Sequence

from dmls_core.errors import ServingError
from dmls_core.serving.client import TritonClient
from dmls_core.serving.model_config import table_name


def switch(client: TritonClient, model: str, version: int) -> None:
    """Have the server serve ``version`` of a model and its table endpoint.

    The table endpoint first: it knows the version that is served and the one to come, and changes in the
    moment in which the forest does. For a new model the forest comes first.

    Raises:
        ServingError: it could not be loaded; what was served before still is.
    """
    if client.versions(model):
        client.load(table_name(model))
        client.load(model)
    else:
        client.load(model)
        client.load(table_name(model))
    if client.versions(model) != (version,):
        raise ServingError(
            f"Triton at {client.addresses['http']} loaded {model} but not version {version}: does it read "
            "the repository written here?"
        )


def take_down(client: TritonClient, model: str) -> None:
    """Have the server forget a model and its table endpoint.

    Raises:
        ServingError: it could not.
    """
    client.unload(table_name(model))
    client.unload(model)


def restore(clients: Sequence[TritonClient], model: str, version: int | None) -> str:
    """Have servers follow the restored configuration; return how that went, for people."""
    failed = []
    for client in clients:
        try:
            if version is None:
                take_down(client, model)
            else:
                switch(client, model, version)
        except ServingError:
            failed.append(client.addresses["http"])
    if version is None:
        return "Nothing else was served"
    if failed:
        return (
            f"Version {version} is configured again, but Triton at {', '.join(failed)} has not confirmed it"
        )
    return f"Version {version} is still served"
