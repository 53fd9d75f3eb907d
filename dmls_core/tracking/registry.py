"""MLflow's model registry: versions, their tags and aliases, and the champion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from dmls_core.errors import NotFoundError, TrackingError, ValidationIssue
from dmls_core.tracking.connection import connect, reaching, request

if TYPE_CHECKING:
    import httpx
    from mlflow import MlflowClient
    from mlflow.entities import Run

CHAMPION, CHALLENGER = "champion", "challenger"
"""Aliases: the served version, and the one that waits to be."""

RUN_KEY_TAG = "dmls.run_key"
_TRITON_VERSION_TAG = "dmls.triton_version"
INTERVAL_END_TAG = "dmls.interval_end"
"""Tag with the end of the interval that a model was trained on, ISO 8601 in UTC."""

DEPLOYED_BY_TAG, DEPLOYED_AT_TAG = "dmls.deployed_by", "dmls.deployed_at"

_ABSENT = frozenset({"RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"})
"""MLflow's error codes for a missing model, and for a model without the alias."""


@dataclass(frozen=True, slots=True)
class RegisteredVersion:
    """A version of a registered model that a run of DMLS made.

    Attributes:
        version: in MLflow's registry.
        run_key: of the run that made it.
        until: end of the interval that it was trained on, ISO 8601 in UTC; empty for data without intervals.
    """

    version: int
    run_key: str
    until: str = ""


def champion_of(uri: str, name: str) -> RegisteredVersion | None:
    """Return the champion of the model ``<team>.<job>``, or ``None`` if it has none made by DMLS.

    An empty ``uri`` means that there is no MLflow server, and so no champion.

    Raises:
        TrackingError: MLflow does not answer.
    """
    return _version_of(uri, name, CHAMPION) if uri else None


def find_champion(uri: str, name: str) -> RegisteredVersion:
    """Return the champion of the model ``<team>.<job>``.

    Raises:
        NotFoundError: there is no champion.
        TrackingError: MLflow does not answer.
    """
    if champion := _version_of(uri, name, CHAMPION):
        return champion
    raise NotFoundError(ValidationIssue(f"{name} has no champion", hint="deploy a model of the job first"))


def find_challenger(uri: str, name: str) -> RegisteredVersion:
    """Return the challenger of the model ``<team>.<job>``; errors as of ``find_champion``."""
    if challenger := _version_of(uri, name, CHALLENGER):
        return challenger
    raise NotFoundError(
        ValidationIssue(
            f"{name} has no challenger", hint="train a model: it is the challenger until it is deployed"
        )
    )


def promote(
    uri: str, name: str, version: int, *, triton_version: int | None = None, deployed_by: str = ""
) -> None:
    """Make a verified version the champion; it is no longer the challenger.

    ``triton_version`` (its version in the Triton repository) and ``deployed_by`` (a user or run) are kept as
    tags, together with the time.

    Raises:
        NotFoundError: there is no such model.
        TrackingError: MLflow does not answer, or has no such version.
    """
    client = connect(uri)
    with reaching(uri, f"make version {version} of {name} the champion"):
        now = _aliases(client, name)
        if now is None:
            raise NotFoundError(f"MLflow has no model {name}")
        tags = {}
        if triton_version is not None:
            tags[_TRITON_VERSION_TAG] = str(triton_version)
        if deployed_by:
            at = datetime.now(UTC).isoformat(timespec="seconds")
            tags |= {DEPLOYED_BY_TAG: deployed_by, DEPLOYED_AT_TAG: at}
        for key, value in tags.items():
            client.set_model_version_tag(name, str(version), key, value)
        client.set_registered_model_alias(name, CHAMPION, str(version))
        if now.get(CHALLENGER) == version:
            client.delete_registered_model_alias(name, CHALLENGER)


def remove_champion(uri: str, name: str) -> None:
    """Leave the model ``<team>.<job>`` without a champion; raise ``TrackingError`` if MLflow fails."""
    client = connect(uri)
    with reaching(uri, f"remove the champion of {name}"):
        if CHAMPION in (_aliases(client, name) or {}):
            client.delete_registered_model_alias(name, CHAMPION)


def promote_served(uri: str, name: str, triton_version: int, *, deployed_by: str) -> None:
    """Make the version that Triton serves as ``triton_version`` the champion; errors as of ``promote``."""
    version = registered_as(uri, name, triton_version)
    promote(uri, name, version, triton_version=triton_version, deployed_by=deployed_by)


def registered_as(uri: str, name: str, triton_version: int) -> int:
    """Return the registered version of a version in the Triton repository.

    If several registered versions hold the same files, the newest counts.

    Raises:
        NotFoundError: MLflow has none.
        TrackingError: MLflow does not answer.
    """
    client = connect(uri)
    with reaching(uri, f"look up version {triton_version} of {name} in Triton"):
        versions = [
            int(version.version)
            for version in client.search_model_versions(f"name = '{name}'")
            if version.tags.get(_TRITON_VERSION_TAG) == str(triton_version)
        ]
    if not versions:
        hint = f"no registered version has the tag {_TRITON_VERSION_TAG}={triton_version}"
        raise NotFoundError(
            ValidationIssue(
                f"MLflow has no version of {name} for version {triton_version} in Triton", hint=hint
            )
        )
    return max(versions)


def served_as(uri: str, name: str, triton_version: int) -> RegisteredVersion:
    """Return the registered version, with its run, of a version in the Triton repository.

    Raises:
        NotFoundError: MLflow has none, or no run of DMLS made it.
        TrackingError: MLflow does not answer.
    """
    version = registered_as(uri, name, triton_version)
    client = connect(uri)
    with reaching(uri, f"look up version {version} of {name}"):
        registered = _made_by_run(version, client.get_model_version(name, str(version)).tags)
    if registered is None:
        raise NotFoundError(ValidationIssue(f"version {version} of {name} was not made by a run of DMLS"))
    return registered


def champions(uri: str) -> dict[str, int | None]:
    """Return, for each model with a champion, the version that Triton should serve.

    ``None``: the champion was never deployed to Triton.

    Raises:
        TrackingError: MLflow does not answer.
    """
    client = connect(uri)
    by_model: dict[str, int | None] = {}
    token: str | None = None
    with reaching(uri, "list the champions"):
        while token != "":
            page = client.search_registered_models(page_token=token)
            for model in page:
                if version := model.aliases.get(CHAMPION):
                    tag = client.get_model_version(model.name, str(version)).tags.get(_TRITON_VERSION_TAG)
                    by_model[model.name] = int(tag) if tag else None
            token = page.token or ""
    return by_model


def champion_in_triton(uri: str, name: str) -> int | None:
    """Return the version that Triton should serve of one model; ``None`` if it has no deployed champion.

    Raises:
        TrackingError: MLflow does not answer.
    """
    client = connect(uri)
    with reaching(uri, f"look up the champion of {name}"):
        version = (_aliases(client, name) or {}).get(CHAMPION)
        tags = client.get_model_version(name, str(version)).tags if version else {}
    return int(tags[_TRITON_VERSION_TAG]) if _TRITON_VERSION_TAG in tags else None


def tag_version(uri: str, name: str, version: int, tags: Mapping[str, str]) -> None:
    """Set tags of a registered version.

    Raises:
        TrackingError: MLflow does not answer, or has no such version.
    """
    client = connect(uri)
    with reaching(uri, f"tag version {version} of {name}"):
        for key, value in tags.items():
            client.set_model_version_tag(name, str(version), key, value)


def register_model(
    client: MlflowClient, run: Run, name: str, model_id: str, description: str, *, challenger: bool = True
) -> int:
    """Make a logged model a version of ``name`` and the challenger; return the version.

    A repeated call registers nothing. The champion does not become the challenger; without ``challenger`` no
    alias changes.
    """
    version = _registered_version(client, run, name)
    tags = own_tags(run)
    if version is None:
        _create_registered_model(client, name, {key: tags[key] for key in ("dmls.team", "dmls.job")})
        created = client.create_model_version(
            name,
            source=f"models:/{model_id}",
            run_id=run.info.run_id,
            tags=tags,
            description=description,
            model_id=model_id,
            await_creation_for=0,
        )
        version = int(created.version)
    if challenger and (_aliases(client, name) or {}).get(CHAMPION) != version:
        client.set_registered_model_alias(name, CHALLENGER, str(version))
    return version


def _registered_version(client: MlflowClient, run: Run, name: str) -> int | None:
    """Return the version of ``name`` that ``run`` produced, if it is registered."""
    versions = client.search_model_versions(f"name = '{name}' and run_id = '{run.info.run_id}'")
    return min((int(version.version) for version in versions), default=None)


def _aliases(client: MlflowClient, name: str) -> dict[str, int] | None:
    """Return the versions of a registered model by alias; ``None`` if there is no such model."""
    from mlflow.exceptions import MlflowException

    try:
        model = client.get_registered_model(name)
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return None
        raise
    return {alias: int(version) for alias, version in model.aliases.items()}


def own_tags(run: Run) -> dict[str, str]:
    """Return the tags that DMLS set on a run."""
    return {key: value for key, value in run.data.tags.items() if key.startswith("dmls.")}


def _version_of(uri: str, name: str, alias: str) -> RegisteredVersion | None:
    """Return the version with an alias, if there is one that DMLS made.

    One REST request: importing MLflow's client takes 2.6 CPU seconds, in two tasks of every run that need
    nothing else of it. A server that requires authentication is left to the client, which knows all methods.
    """
    answer = request(uri, "/api/2.0/mlflow/registered-models/alias", name=name, alias=alias)
    if answer.status_code in (401, 403):
        return _version_by_client(uri, name, alias)
    if answer.is_error:
        if _error_code(answer) in _ABSENT:
            return None
        raise TrackingError(
            f"MLflow at {uri} could not look up the {alias} of {name}: HTTP status {answer.status_code}"
        )
    try:
        content = answer.json()["model_version"]
        tags = {tag["key"]: tag["value"] for tag in content.get("tags", ())}
        return _made_by_run(int(content["version"]), tags)
    except (ValueError, KeyError, TypeError) as error:
        raise TrackingError(
            f"MLflow does not answer at {uri}: start it, or correct its address ({error!r})"
        ) from error


def _version_by_client(uri: str, name: str, alias: str) -> RegisteredVersion | None:
    client = connect(uri)
    with reaching(uri, f"look up the {alias} of {name}"):
        version = (_aliases(client, name) or {}).get(alias)
        tags = client.get_model_version(name, str(version)).tags if version else {}
    return _made_by_run(version, tags) if version else None


def _made_by_run(version: int, tags: Mapping[str, str]) -> RegisteredVersion | None:
    if RUN_KEY_TAG not in tags:
        return None
    return RegisteredVersion(version, tags[RUN_KEY_TAG], tags.get(INTERVAL_END_TAG, ""))


def _error_code(answer: httpx.Response) -> Any:  # noqa: ANN401 - whatever the server sent
    try:
        return answer.json().get("error_code")
    except (ValueError, AttributeError):
        return None


def _create_registered_model(client: MlflowClient, name: str, tags: Mapping[str, str]) -> None:
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name, tags=dict(tags))
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
