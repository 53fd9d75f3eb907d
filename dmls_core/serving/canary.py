"""Try a challenger on a share of the table endpoint's requests: instead of what is served, or beside it.

The first is a canary, the second a shadow. A challenger that goes away fails no request: what is served
answers.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from dmls_core.errors import NotFoundError, ServingError, UserError, ValidationIssue
from dmls_core.serving.deployment import Servers, drop_candidate, drop_challenger, each, stage
from dmls_core.serving.model_config import CANDIDATE, CHALLENGER, table_name
from dmls_core.serving.options import Canary
from dmls_core.serving.repository import Repository
from dmls_core.serving.verification import prove


def start_canary(
    repository: Repository, servers: Servers, model: str, folder: Path, *, share: float, shadow: bool
) -> int:
    """Have a share of the table endpoint's requests sent to a challenger, once it has proven itself.

    Args:
        repository: where Triton reads models from.
        servers: the Triton servers.
        model: ``<team>.<job>``.
        folder: the challenger's ``model/`` folder.
        share: of the requests.
        shadow: whether the served version answers them, and the challenger is only compared with it.

    Returns:
        The challenger's version.

    Raises:
        NotFoundError: nothing is served yet.
        UserError: the challenger is what is served, or predicts another kind of target.
        ServingError: it could not be loaded, or did not prove itself; nothing has changed then.
    """
    if repository.staged(model) is not None:
        raise ServingError(f"a candidate of {model} is being proven just now: try again when it is deployed")
    version = stage(repository, servers, model, folder).version
    with repository.lock(model):
        live = repository.serving(model)
        try:
            _check(repository, model, version, live)
            for client in each(servers):
                prove(repository, client, model, version, model + CANDIDATE, None)
        finally:
            drop_candidate(repository, servers, model)
        before = repository.options(model)
        try:
            repository.add_challenger(model, version, folder)
            for client in each(servers):
                client.load(model + CHALLENGER)
            repository.set_options(model, replace(before, canary=Canary(version, share, shadow)))
            _reload(repository, servers, model, live)
        except ServingError:
            repository.set_options(model, replace(before, canary=None))
            with suppress(ServingError):
                _reload(repository, servers, model, live)
            drop_challenger(repository, servers, model)
            raise
    return version


def end_canary(repository: Repository, servers: Servers, model: str) -> int | None:
    """Have all requests answered by what is served; return the challenger's version, if one was tried.

    Raises:
        ServingError: a server does not answer.
    """
    with repository.lock(model):
        before = repository.options(model)
        repository.set_options(model, replace(before, canary=None))
        _reload(repository, servers, model, repository.serving(model))
        drop_challenger(repository, servers, model)
    return before.canary.version if before.canary else None


def _check(repository: Repository, model: str, version: int, live: int | None) -> None:
    if live is None:
        raise NotFoundError(
            ValidationIssue(f"{model} is not served: there is nothing to try it beside", hint="deploy it")
        )
    if version == live:
        raise UserError(
            ValidationIssue(f"the challenger is version {live} of {model}, which is served already")
        )
    kinds = [repository.read(model, number, "model.json")["task"] for number in (version, live)]
    if kinds[0] != kinds[1]:
        raise UserError(
            ValidationIssue(
                f"{model} is a {kinds[1]}, and the challenger a {kinds[0]}: they have other outputs"
            )
        )


def _reload(repository: Repository, servers: Servers, model: str, live: int | None) -> None:
    """Have the servers follow the configuration of the table endpoint; the forest stays as it is."""
    if live is not None:
        repository.serve(model, live)
        for client in each(servers):
            client.load(table_name(model))
