"""Roll back, retire, change the spec: with the same functions as `dmls` and the intake."""

from __future__ import annotations

import logging

from dmls_core.airflow.connections import open_repository
from dmls_core.airflow.settings import AirflowSettings, airflow_settings
from dmls_core.errors import ConflictError, NotFoundError, StoreError, ValidationIssue
from dmls_core.intake import add_note
from dmls_core.intake.admission import Outcome, admit
from dmls_core.serving import Deployment
from dmls_core.store import Store, layout
from dmls_core.web.backend import open_store

log = logging.getLogger(__name__)


def roll_back(team: str, name: str, version: int | None, by: str) -> Deployment:
    """Serve an earlier version again, and make it the champion, in one transaction; note it beside the drop.

    Args:
        team: of the job.
        name: of the job.
        version: in Triton; ``None``: the verified one before.
        by: who asks, as MLflow is to note it.

    Raises:
        NotFoundError: there is no such version to go back to.
        ServingError: it could not be served; what was served still is.
    """
    from dmls_core.monitoring.counters import count
    from dmls_core.serving import rollback, triton_servers
    from dmls_core.tracking import promote, registered_as

    settings = _serving_settings()
    model = layout.model_name(team, name)

    def make_champion(served: int, _: int | None) -> None:
        registered = registered_as(settings.mlflow_uri, model, served)
        promote(settings.mlflow_uri, model, registered, triton_version=served, deployed_by=by)

    with triton_servers(settings.triton_http, settings.triton_grpc, key=settings.load_key()) as servers:
        done = rollback(open_repository(settings), servers, model, version, finish=make_champion)
    store = open_store()
    count(store, team, name, "rollbacks")
    try:
        add_note(store, team, name, f"version {done.version} is served again, rolled back by {by}", {})
    except StoreError as error:
        log.warning("the rollback of %s/%s is not noted beside its drop: %s", team, name, error)
    return done


def kept_versions(team: str, name: str) -> tuple[int | None, tuple[int, ...]]:
    """Return the version that is served, and those that a rollback may go to."""
    repository = open_repository(_serving_settings())
    model = layout.model_name(team, name)
    versions = repository.versions(model)
    kept = tuple(sorted(version for version in repository.verified(model) if version in versions))
    return repository.serving(model), kept


def retire(store: Store, team: str, name: str) -> Outcome:
    """Take the spec away and have the intake see it: the job is retired, its history and model stay.

    Raises:
        NotFoundError: there is no spec.
        StoreError: the store does not answer.
    """
    key = layout.incoming_file(team, name, layout.SPEC_FILE)
    if store.head(key) is None:
        raise NotFoundError(
            ValidationIssue(f"{team}/{name} has no spec to take away", hint="it is retired already")
        )
    store.delete(key)
    return admit(store, team, name)


def read_spec_text(store: Store, team: str, name: str, limit: int) -> tuple[str, str]:
    """Return the spec as it was dropped, and its ETag.

    Raises:
        ObjectMissingError: it was taken away.
    """
    content, info = store.read(layout.incoming_file(team, name, layout.SPEC_FILE), limit=limit)
    return content.decode(errors="replace"), info.etag


def drop_spec(store: Store, team: str, name: str, text: str, etag: str) -> None:
    """Drop a changed spec in the place of the one that was read; the intake does the rest.

    Raises:
        SpecError: it is not valid; nothing was written.
        ConflictError: somebody else has dropped one meanwhile.
    """
    from dmls_core.models import load_spec

    content = text.encode()
    load_spec(content)
    try:
        store.replace(layout.incoming_file(team, name, layout.SPEC_FILE), content, etag)
    except ConflictError as error:
        raise ConflictError(
            f"somebody else has changed the spec of {team}/{name} meanwhile: read it again"
        ) from error


def _serving_settings() -> AirflowSettings:
    settings = airflow_settings()
    for field in ("mlflow_uri", "triton_http", "triton_grpc", "triton_repository"):
        if not getattr(settings, field):
            raise NotFoundError(
                ValidationIssue(
                    "this platform serves no models", key=field, hint="set it in the bundle's kwargs"
                )
            )
    return settings
