"""Load a version of a model and its table endpoint on one Triton server."""

from __future__ import annotations

import time
from collections.abc import Sequence

from dmls_core.errors import ServingError
from dmls_core.serving.triton.client import TritonClient
from dmls_core.serving.triton.model_config import CANDIDATE, table_name

RESTART_SECONDS = 60.0
"""Longest wait for a crashed server: its supervisor restarts it, and it loads models before it answers."""

_PAUSE = 0.5


def load_version(client: TritonClient, model: str, version: int) -> None:
    """Load the version of a model and of its table endpoint that the repository configures.

    The table endpoint is loaded first: it accepts the columns of the served and of the next version, so it
    switches at the moment the forest does. If its configuration is unchanged, Triton does nothing. For a new
    model the forest comes first. A failure raises ServingError; the server still serves the previous version
    then.
    """
    if client.versions(model):
        client.load(table_name(model))
        client.load(model)
    else:
        client.load(model)
        client.load(table_name(model))
    _check_loaded(client, model, version)


def load_candidate(client: TritonClient, model: str, version: int) -> None:
    """Load the candidate of a model, whose served table endpoint answers for it; see ``load_version``."""
    client.load(model + CANDIDATE)
    client.load(table_name(model))  # changes nothing, unless the server has lost it
    _check_loaded(client, model + CANDIDATE, version)


def _check_loaded(client: TritonClient, model: str, version: int) -> None:
    if client.versions(model) != (version,):
        raise ServingError(
            f"Triton at {client.addresses['http']} loaded {model} but not version {version}: check that it "
            "reads this repository"
        )


def unload(client: TritonClient, model: str) -> None:
    """Unload a model and its table endpoint, or raise ServingError."""
    client.unload(table_name(model))
    client.unload(model)


def serve_again(clients: Sequence[TritonClient], model: str, version: int | None) -> str:
    """Have each server serve what is configured; return what is served now, in words for users.

    A server that does not answer may have crashed, and its supervisor restarts it: this waits for
    ``RESTART_SECONDS`` at most.
    """
    end = time.monotonic() + RESTART_SECONDS
    restarted, failed = [], []
    for client in clients:
        crashed = not client.live()
        if not _serves(client, model, version, end):
            failed.append(client.addresses["http"])
        elif crashed:
            restarted.append(client.addresses["http"])
    if version is None:
        lost = f", and Triton at {', '.join(failed)} does not answer" if failed else ""
        return f"No other version was served{lost}"
    if failed:
        return (
            f"Version {version} is configured, but Triton at {', '.join(failed)} does not serve it: "
            "it serves it once it is started again"
        )
    if restarted:
        return f"Triton at {', '.join(restarted)} ended and restarted: version {version} is served again"
    return f"Version {version} is still served"


def _serves(client: TritonClient, model: str, version: int | None, end: float) -> bool:
    """Load the configured version, or unload the model, once the server answers; return the success."""
    while True:
        if client.live():
            try:
                if version is None:
                    unload(client, model)
                else:
                    load_version(client, model, version)
            except ServingError:
                if client.live():
                    return False
            else:
                return True
        if time.monotonic() > end:
            return False
        time.sleep(_PAUSE)
