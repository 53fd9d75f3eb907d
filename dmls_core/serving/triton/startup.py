"""The models that a Triton server loads when it starts, by the repository's records.

A server that a model crashed must not load that model again: candidates are left out, and so are forests
whose file has changed. A version that was being deployed when the server ended is replaced by the verified
one before.

``python -m dmls_core.serving.triton.startup FOLDER`` prints the arguments for a server of your own. With its
gRPC address behind the folder, as in ``DMLS_TRITON_GRPC``, these are the models that are placed on it.
"""

from __future__ import annotations

import logging
import sys

from dmls_core.errors import DmlsError, PlatformError
from dmls_core.serving.repository.locks import BusyError
from dmls_core.serving.repository.repository import Repository
from dmls_core.serving.triton.addresses import split_addresses, split_copies
from dmls_core.serving.triton.model_config import (
    BOOKKEEPING,
    CANDIDATE,
    CHALLENGER,
    CONFIG_FILE,
    SUFFIX,
    table_name,
)
from dmls_core.serving.triton.placement import rank
from dmls_core.settings import load_settings

log = logging.getLogger(__name__)


def load_arguments(folder: str, address: str = "", addresses: str = "") -> list[str]:
    """Return Triton's arguments that name the models to load from the repository in a folder.

    ``address`` is the server's gRPC address in the list ``addresses``; without it, all models are loaded.

    Raises:
        PlatformError: the list does not contain the address, or is none.
    """
    return [f"--load-model={name}" for name in models_to_load(Repository(folder), address, addresses)]


def models_to_load(repository: Repository, address: str = "", addresses: str = "") -> list[str]:
    """Return the names of the models to load; models that DMLS did not write are all loaded.

    A model that is left out is reported in the server's log, unless its place is on other servers.
    """
    every, copies = split_addresses(addresses), split_copies(addresses)
    if address and address not in every:
        raise PlatformError(
            f"{address} is not among Triton's gRPC addresses ({addresses}): write it as it is written there"
        )
    there = sorted(path.parent.name for path in repository.root.glob(f"*/{CONFIG_FILE}"))
    bookkeeping = repository.root / BOOKKEEPING
    names: list[str] = []
    for name in there:
        forest = name.removesuffix(SUFFIX).removesuffix(CANDIDATE).removesuffix(CHALLENGER)
        if not (bookkeeping / forest).is_dir():
            names.append(name)
        elif name == forest and (not (address and copies) or address in rank(every, name)[:copies]):
            try:
                names += _parts_to_load(repository, name, there)
            except (DmlsError, OSError, ValueError, KeyError) as error:
                log.warning("%s is not loaded: %s", name, error)
    return names


def _parts_to_load(repository: Repository, name: str, there: list[str]) -> list[str]:
    """Return the forest, its table endpoint and its challenger; empty if the forest must not be loaded."""
    configured = repository.serving(name)
    _, version = repository.before(name, configured or 0)
    if version is None:
        return []
    if version != configured:
        try:
            with repository.lock(name, timeout=0.0):
                repository.serve(name, version)
        except BusyError:
            # Its publisher is restoring the verified version, and loads it.
            return []
    repository.check_copy(name, version)
    parts = [name, table_name(name)]
    challenger = repository.options(name).canary
    if challenger and name + CHALLENGER in there:
        try:
            repository.check_copy(name, challenger.version, CHALLENGER)
            parts.append(name + CHALLENGER)
        except DmlsError as error:
            log.warning("%s%s is not loaded: %s", name, CHALLENGER, error)
    return parts


if __name__ == "__main__":
    logging.basicConfig(format="%(message)s")
    grpc = load_settings().triton_grpc if sys.argv[2:] else ""
    arguments = load_arguments(sys.argv[1], "".join(sys.argv[2:3]), grpc)
    sys.stdout.writelines(f"{argument}\n" for argument in arguments)
