"""Make Triton serve what it should again, and take away what killed publishers left."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from dmls_core.errors import NotFoundError, ValidationIssue
from dmls_core.serving.deployment import Servers, change, drop_candidate, each
from dmls_core.serving.model_config import CANDIDATE, CONFIG_FILE
from dmls_core.serving.repository import Repository

ABANDONED = timedelta(hours=6)
"""Age from which a candidate is not going to be proven any more: what loads it proves it within minutes."""


def repair(repository: Repository, servers: Servers, model: str, wanted: Callable[[], int | None]) -> str:
    """Have every server serve the champion, if one does not.

    The champion decides, and neither the configuration nor the servers: it is what people move, and what a
    publish moves last.

    Args:
        repository: where Triton reads models from.
        servers: the Triton servers.
        model: ``<team>.<job>``.
        wanted: returns the champion's version in the repository, or None. It is asked while nobody
            publishes.

    Returns:
        What was wrong, for people; empty: nothing was.

    Raises:
        BusyError: somebody is publishing the model.
        NotFoundError: the repository does not hold the champion's version any more.
        ServingError: it is damaged, could not be loaded or does not answer as it should; what was served
            before still is.
    """
    with repository.lock(model, timeout=0.0):
        version = wanted()
        if version is None:
            return ""
        wrong = disagreement(repository, servers, model, version)
        if not wrong:
            return ""
        if version not in repository.versions(model):
            raise NotFoundError(
                ValidationIssue(
                    f"{model} has version {version} as champion, which the repository does not hold",
                    hint="train and deploy it again, or make a version champion that is kept: "
                    f"{', '.join(map(str, repository.versions(model))) or 'there is none'}",
                )
            )
        repository.check(model, version)
        change(repository, servers, model, version, repository.serving(model))
        repository.confirm(model, version)
        return wrong


def disagreement(repository: Repository, servers: Servers, model: str, version: int) -> str:
    """Say what does not serve ``version`` of a model, or is not configured to; empty: all is well.

    Raises:
        ServingError: a server or the repository does not answer.
    """
    wrong = [
        f"Triton at {client.addresses['http']} served {f'version {found[-1]}' if found else 'no version'}"
        for client in each(servers)
        if (found := client.versions(model)) != (version,)
    ]
    if (configured := repository.serving(model)) != version:
        wrong.append(f"version {configured} was configured" if configured else "no version was configured")
    return "; ".join(wrong)


def drop_abandoned(repository: Repository, servers: Servers, model: str) -> bool:
    """Remove a candidate that its publisher left behind, from the repository and from the servers' memory.

    Raises:
        BusyError: somebody is publishing the model.
        ServingError: the repository does not answer.
    """
    found = repository.store.head(f"{model}{CANDIDATE}/{CONFIG_FILE}")
    if found is None or found.modified > datetime.now(UTC) - ABANDONED:
        return False
    with repository.lock(model, timeout=0.0):
        drop_candidate(repository, servers, model)
    return True
