"""Put a candidate behind Triton as one transaction, and go back.

A version is loaded under the candidate's name first, beside the one that is served, and proves itself there.
Only then the served model changes to it, on one server after the other. Each step can be interrupted and
repeated; at each of them Triton answers with a version that proved itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from dmls_core.errors import DmlsError, NotFoundError, ServingError, ValidationIssue
from dmls_core.serving.client import TritonClient
from dmls_core.serving.forest_size import check_size
from dmls_core.serving.model_config import CANDIDATE, CHALLENGER, table_name
from dmls_core.serving.options import ServingOptions
from dmls_core.serving.repository import Repository
from dmls_core.serving.triton_loading import restore, switch, take_down
from dmls_core.serving.verification import Proof, prove

KEEP = 3
"""Versions that stay in the repository, with the one that is served."""

Servers = TritonClient | Sequence[TritonClient]
Finish = Callable[[int, int | None], None]
"""Called with the new version and the one before, once Triton serves it: moves MLflow's alias."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """A version in the repository.

    Attributes:
        model: ``<team>.<job>``.
        version: the version in the Triton repository.
        previous: the verified version to go back to, if there is one.
        proof: what was measured of it; ``None`` before it is served.
    """

    model: str
    version: int
    previous: int | None
    proof: Proof | None = None


def deploy(
    repository: Repository,
    servers: Servers,
    model: str,
    folder: Path,
    *,
    max_latency_ms: float | None = None,
    keep: int = KEEP,
    options: ServingOptions | None = None,
    finish: Finish | None = None,
) -> Deployment:
    """Publish a run's ``model/`` folder as a version of ``model``, prove it and serve it.

    Repeating it, after whatever interruption, ends in the same version.

    Args:
        repository: where Triton reads models from.
        servers: the Triton servers, all of which read that repository.
        model: ``<team>.<job>``.
        folder: holds ``checkpoint.tl``, ``encoder.json``, ``golden.json`` and ``model.json``.
        max_latency_ms: longest median of a request for one row.
        keep: versions that stay in the repository.
        options: how the model is served from now on; as before if None.
        finish: see ``Finish``; where it fails, the old version is served again.

    Raises:
        ServingError: the version could not be written, loaded or proven; what was served before still is.
    """
    staged = stage(repository, servers, model, folder)
    return go_live(
        repository,
        servers,
        model,
        staged.version,
        max_latency_ms=max_latency_ms,
        keep=keep,
        options=options,
        finish=finish,
    )


def stage(repository: Repository, servers: Servers, model: str, folder: Path) -> Deployment:
    """Write a run's ``model/`` folder as a version, and have Triton load it as the candidate.

    What is served does not change.

    Args:
        repository: where Triton reads models from.
        servers: the Triton servers.
        model: ``<team>.<job>``.
        folder: the run's ``model/`` folder.

    Raises:
        UserError: it is too large to be loaded.
        ServingError: it could not be written or loaded; the candidate is gone then.
    """
    check_size(model, folder)
    with repository.lock(model):
        version = repository.add(model, folder)
        candidate = repository.stage(model, version, folder)
        try:
            for client in each(servers):
                switch(client, candidate, version)
        except ServingError as error:
            drop_candidate(repository, servers, model)
            raise ServingError(f"{error}. {_still(repository, model)}") from error
        return Deployment(model, version, repository.previous(model, version))


def go_live(
    repository: Repository,
    servers: Servers,
    model: str,
    version: int,
    *,
    max_latency_ms: float | None = None,
    keep: int = KEEP,
    options: ServingOptions | None = None,
    finish: Finish | None = None,
) -> Deployment:
    """Prove the candidate on every server, then have each serve it under the model's own name.

    Args:
        repository: where Triton reads models from.
        servers: the Triton servers.
        model: ``<team>.<job>``.
        version: what ``stage`` returned.
        max_latency_ms: longest median of a request for one row.
        keep: versions that stay in the repository.
        options: how the model is served from now on; as before if None.
        finish: see ``Finish``; where it fails, the old version is served again.

    Raises:
        ServingError: it did not prove itself, another publisher has put another candidate in its place, or
            a server could not load it; what was served before is served by all of them.
    """
    with repository.lock(model):
        if repository.staged(model) != version:
            if repository.serving(model) == version and version in repository.verified(model):
                return Deployment(model, version, repository.previous(model, version))  # a repeated step
            raise ServingError(
                f"version {version} of {model} is not the candidate any more: another publisher has come "
                f"between. {_still(repository, model)}"
            )
        candidate = model + CANDIDATE
        try:
            repository.check(model, version)
            proofs = []
            for client in each(servers):
                switch(client, candidate, version)
                proofs.append(prove(repository, client, model, version, candidate, max_latency_ms))
        except ServingError as error:
            drop_candidate(repository, servers, model)
            raise ServingError(f"{error}. {_still(repository, model)}") from error
        previous = repository.previous(model, version)
        now = repository.serving(model)
        # After an interruption the configuration may name a version that is not recorded as proven yet.
        before = now if now in repository.verified(model) else previous
        wanted = options or repository.options(model)
        tried = repository.options(model).canary
        change(repository, servers, model, version, before, finish, replace(wanted, canary=None))
        repository.confirm(model, version)
        drop_candidate(repository, servers, model)
        if tried:
            drop_challenger(repository, servers, model)
        repository.prune(model, keep)
        return Deployment(model, version, previous, max(proofs, key=lambda proof: proof.milliseconds))


def rollback(
    repository: Repository,
    servers: Servers,
    model: str,
    version: int | None = None,
    *,
    finish: Finish | None = None,
) -> Deployment:
    """Have Triton serve a version again that was verified before.

    Args:
        repository: where Triton reads models from.
        servers: the Triton servers.
        model: ``<team>.<job>``.
        version: by default the last other one that was verified.
        finish: see ``Finish``; where it fails, nothing has changed.

    Raises:
        NotFoundError: there is no such version.
        ServingError: it is damaged, could not be loaded or answers otherwise; nothing has changed then.
    """
    with repository.lock(model):
        now = repository.serving(model)
        wanted = version or repository.previous(model, now or 0)
        kept = [v for v in repository.verified(model) if v in repository.versions(model)]
        if wanted is None or wanted not in kept:
            which = f"version {wanted}" if wanted else "earlier version"
            hint = f"versions that are kept: {', '.join(map(str, sorted(kept))) or 'none'}"
            raise NotFoundError(ValidationIssue(f"{model} has no verified {which} to go back to", hint=hint))
        repository.check(model, wanted)
        change(repository, servers, model, wanted, now, finish)
        repository.confirm(model, wanted)
        return Deployment(model, wanted, now)


def rollback_to(repository: Repository, servers: Servers, model: str, version: int | None) -> None:
    """Have Triton serve ``version`` again; ``None`` (nothing was ever verified) takes the model down.

    Raises:
        NotFoundError: there is no such version.
        ServingError: it is damaged, or Triton could not load it.
    """
    if version is not None:
        rollback(repository, servers, model, version)
        return
    with repository.lock(model):
        repository.serve(model, None)
        for client in each(servers):
            take_down(client, model)


def change(
    repository: Repository,
    servers: Servers,
    model: str,
    version: int,
    before: int | None,
    finish: Finish | None = None,
    options: ServingOptions | None = None,
) -> None:
    """Change every server to ``version``, or leave all at ``before``; the model's lock is held.

    Raises:
        ServingError: one could not; the message says what is served now.
    """
    touched: list[TritonClient] = []
    options_before = repository.options(model)
    try:
        repository.set_options(model, options or options_before)
        repository.serve(model, version, beside=before)
        for client in each(servers):
            touched.append(client)
            switch(client, model, version)
            prove(repository, client, model, version, model, None)
        if finish:
            finish(version, before)
    except DmlsError as error:
        repository.set_options(model, options_before)
        repository.serve(model, before, beside=version)
        outcome = restore(touched, model, before)
        raise ServingError(f"{error}. {outcome}") from error
    # Without it the endpoint goes on to take the columns of the version before, too.
    with suppress(ServingError):
        repository.serve(model, version)
        for client in touched:
            client.load(table_name(model))


def drop_candidate(repository: Repository, servers: Servers, model: str) -> None:
    """Remove the candidate from the repository and from memory, as far as the servers answer."""
    repository.unstage(model)
    for client in each(servers):
        with suppress(ServingError):  # it goes with the server then
            take_down(client, model + CANDIDATE)


def drop_challenger(repository: Repository, servers: Servers, model: str) -> None:
    """Remove the challenger from the repository and from memory, as far as the servers answer."""
    repository.remove_challenger(model)
    for client in each(servers):
        with suppress(ServingError):
            client.unload(model + CHALLENGER)


def _still(repository: Repository, model: str) -> str:
    now = repository.serving(model)
    return "Nothing else was served" if now is None else f"Version {now} is still served"


def each(servers: Servers) -> Sequence[TritonClient]:
    """Return the servers as a sequence."""
    return (servers,) if not isinstance(servers, Sequence) else servers
