"""Bring Triton back to the champion, and remove candidates that killed publishers left behind."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from dmls_core.errors import NotFoundError, ValidationIssue
from dmls_core.serving.deployment.acceptance import check_version
from dmls_core.serving.deployment.deployment import Deployment
from dmls_core.serving.deployment.verification import GoldenRows
from dmls_core.serving.repository.intents import Intent, clear_intent, read_intent
from dmls_core.serving.triton.model_config import CANDIDATE, CONFIG_FILE, table_name

ABANDONED = timedelta(hours=6)
"""Age from which a candidate counts as abandoned.

Publishers verify theirs within minutes, but ``promote`` may wait for a slot or be cleared by a person.
"""


def reconcile(deployment: Deployment, champion: Callable[[], int | None], *, timeout: float = 0.0) -> str:
    """Have every server serve the champion; return what differed, for users, or an empty text.

    The champion decides, not the configuration or the servers: people move it, and a publisher moves it last.
    That finishes or undoes what a killed publisher left behind. ``champion`` returns its
    version in the repository, or ``None``; it is called while the lock keeps publishers out.

    Raises:
        BusyError: another publisher was at work on the model for ``timeout`` seconds.
        NotFoundError: the repository does not hold the champion's version any more.
        ServingError: it is damaged, could not be loaded or failed verification; Triton still serves the
            previous version.
    """
    repository, model = deployment.repository, deployment.model
    with repository.lock(model, timeout=timeout):
        version, intent = champion(), read_intent(repository.store, model)
        if version is None:
            return _undo(deployment, intent) if intent else ""
        differs = differences(deployment, version)
        if differs:
            _serve(deployment, version, "the champion")
        elif intent:
            repository.confirm(model, version)
            clear_intent(repository.store, model)
        return differs


def _undo(deployment: Deployment, intent: Intent) -> str:
    """Undo the interrupted deployment of a model without a champion, or finish stopping it."""
    before = intent.before if intent.version else None
    if before:
        differs = differences(deployment, before)
        _serve(deployment, before, "the version before")
        return differs
    version = deployment.repository.serving(deployment.model)
    deployment.serve_nothing()
    return f"version {version} was served without a champion" if version else ""


def _serve(deployment: Deployment, version: int, which: str) -> None:
    repository, model = deployment.repository, deployment.model
    if version not in repository.versions(model):
        raise NotFoundError(
            ValidationIssue(
                f"{which} of {model} is version {version}, which the repository does not hold",
                hint="train and deploy it again, or make a kept version the champion: "
                f"{', '.join(map(str, repository.versions(model))) or 'there is none'}",
            )
        )
    check_version(repository, model, version)
    deployment.serve(GoldenRows.read(repository, model, version), repository.serving(model))


def differences(deployment: Deployment, version: int) -> str:
    """Return which servers do not serve ``version``, or that it is not configured; empty if all agree.

    Raises:
        ServingError: a server or the repository does not answer.
    """
    parts = []
    for client in deployment.servers:
        served = client.versions(deployment.model)
        if served != (version,):
            what = f"version {served[-1]}" if served else "no version"
            parts.append(f"Triton at {client.addresses['http']} served {what}")
        elif not client.ready(table_name(deployment.model)):
            parts.append(f"Triton at {client.addresses['http']} did not serve the table endpoint")
    configured = deployment.repository.serving(deployment.model)
    if configured != version:
        parts.append(f"version {configured} was configured" if configured else "no version was configured")
    return "; ".join(parts)


def remove_abandoned_candidate(deployment: Deployment) -> bool:
    """Remove a candidate that its publisher left behind; return whether there was one.

    Raises:
        BusyError: another publisher is at work on the model.
        ServingError: the repository does not answer.
    """
    repository, model = deployment.repository, deployment.model
    config = repository.store.head(f"{model}{CANDIDATE}/{CONFIG_FILE}")
    if config is None or config.modified > datetime.now(UTC) - ABANDONED:
        return False
    with repository.lock(model, timeout=0.0):
        deployment.discard_candidate()
    return True
