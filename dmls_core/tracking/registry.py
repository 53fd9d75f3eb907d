"""MLflow's model registry: versions, their tags and aliases, and the champion."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from dmls_core.errors import NotFoundError, TrackingError, ValidationIssue
from dmls_core.tracking.connection import PROBE_SECONDS, connect, reaching

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

RUN_KEY_TAG = "dmls.run_key"

TRITON_VERSION_TAG = "dmls.triton_version"

INTERVAL_END_TAG = "dmls.interval_end"
"""Tag with the end of the interval that a model was trained on, ISO 8601 in UTC."""


DEPLOYED_BY_TAG, DEPLOYED_AT_TAG = "dmls.deployed_by", "dmls.deployed_at"


def promote(
    uri: str, name: str, version: int, *, triton_version: int | None = None, deployed_by: str = ""
) -> None:
    """Make a version the champion, after it was verified; it is no challenger any more.

    Args:
        uri: the MLflow server.
        name: ``<team>.<job>``.
        version: the registered model's version.
        triton_version: the version in the Triton repository that serves it, noted as a tag.
        deployed_by: who did it, noted with the time as tags.

    Raises:
        NotFoundError: there is no such model.
        TrackingError: MLflow does not answer, or has no such version.
    """
    client = connect(uri)
    with reaching(uri, f"make version {version} of {name} the champion"):
        now = aliases(client, name)
        if not now:
            raise NotFoundError(f"MLflow has no model {name} with a challenger")
        if triton_version is not None:
            client.set_model_version_tag(name, str(version), TRITON_VERSION_TAG, str(triton_version))
        if deployed_by:
            now_utc = datetime.now(UTC).isoformat(timespec="seconds")
            for key, value in ((DEPLOYED_BY_TAG, deployed_by), (DEPLOYED_AT_TAG, now_utc)):
                client.set_model_version_tag(name, str(version), key, value)
        client.set_registered_model_alias(name, CHAMPION, str(version))
        if now.get(CHALLENGER) == version:
            client.delete_registered_model_alias(name, CHALLENGER)


@dataclass(frozen=True, slots=True)
class Champion:
    """The version of a registered model that is served, or waits to be.

    Attributes:
        version: in MLflow's registry.
        run_key: of the run that made it.
        until: end of the interval that it was trained on, ISO 8601 in UTC; empty: its data is of none.
    """

    version: int
    run_key: str
    until: str = ""


def find_champion(uri: str, name: str) -> Champion:
    """Return the champion of a model.

    Args:
        uri: the MLflow server.
        name: ``<team>.<job>``.

    Raises:
        NotFoundError: there is no champion.
        TrackingError: MLflow does not answer.
    """
    return _find(uri, name, CHAMPION, "deploy a model of the job first")


def find_challenger(uri: str, name: str) -> Champion:
    """Return what waits to be the champion of a model; arguments and errors as of ``find_champion``."""
    return _find(uri, name, CHALLENGER, "train one: it is challenger until it is deployed")


def _find(uri: str, name: str, alias: str, hint: str) -> Champion:
    client = connect(uri)
    with reaching(uri, f"look up the {alias} of {name}"):
        version = aliases(client, name).get(alias)
        tags = client.get_model_version(name, str(version)).tags if version else {}
    if version is None or RUN_KEY_TAG not in tags:
        raise NotFoundError(ValidationIssue(f"{name} has no {alias}", hint=hint))
    return Champion(version, tags[RUN_KEY_TAG], tags.get(INTERVAL_END_TAG, ""))


def tag_version(uri: str, name: str, version: int, tags: Mapping[str, str]) -> None:
    """Set tags of a model's version.

    Raises:
        TrackingError: MLflow does not answer, or has no such version.
    """
    client = connect(uri)
    with reaching(uri, f"tag version {version} of {name}"):
        for key, value in tags.items():
            client.set_model_version_tag(name, str(version), key, value)


def registered_as(uri: str, name: str, triton_version: int) -> int:
    """Return the version of a registered model that a version in the Triton repository was made from.

    Args:
        uri: the MLflow server.
        name: ``<team>.<job>``.
        triton_version: the version in the repository; of several that hold the same files, the newest counts.

    Raises:
        NotFoundError: MLflow has none.
        TrackingError: MLflow does not answer.
    """
    client = connect(uri)
    with reaching(uri, f"look up version {triton_version} of {name} in Triton"):
        found = [
            int(version.version)
            for version in client.search_model_versions(f"name = '{name}'")
            if version.tags.get(TRITON_VERSION_TAG) == str(triton_version)
        ]
    if not found:
        hint = f"no version of it has the tag {TRITON_VERSION_TAG}={triton_version}"
        raise NotFoundError(ValidationIssue(f"MLflow has no version of {name} for it", hint=hint))
    return max(found)


def served_as(uri: str, name: str, triton_version: int) -> Champion:
    """Return which version answered under a number in the Triton repository, and the run that made it.

    Args:
        uri: the MLflow server.
        name: ``<team>.<job>``.
        triton_version: the version in the repository.

    Raises:
        NotFoundError: MLflow has none, or one that no run made.
        TrackingError: MLflow does not answer.
    """
    version = registered_as(uri, name, triton_version)
    client = connect(uri)
    with reaching(uri, f"look up version {version} of {name}"):
        tags = client.get_model_version(name, str(version)).tags
    if RUN_KEY_TAG not in tags:
        raise NotFoundError(ValidationIssue(f"version {version} of {name} was not made by a run of DMLS"))
    return Champion(version, tags[RUN_KEY_TAG], tags.get(INTERVAL_END_TAG, ""))


def champions(uri: str) -> dict[str, int | None]:
    """Return the version in Triton that should be served of each model that has a champion.

    ``None`` where the champion says none.

    Raises:
        TrackingError: MLflow does not answer.
    """
    client = connect(uri)
    found: dict[str, int | None] = {}
    token: str | None = None
    with reaching(uri, "list the champions"):
        while token != "":
            page = client.search_registered_models(page_token=token)
            for model in page:
                if version := model.aliases.get(CHAMPION):
                    tag = client.get_model_version(model.name, str(version)).tags.get(TRITON_VERSION_TAG)
                    found[model.name] = int(tag) if tag else None
            token = page.token or ""
    return found


ALIAS = "/api/2.0/mlflow/registered-models/alias"
NONE_THERE = frozenset({"RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"})
"""MLflow's answers where there is no such model, and where the model has no such alias."""


def champion_of(uri: str, name: str) -> Champion | None:
    """Return the champion of a model, if it has one that DMLS made.

    Args:
        uri: the MLflow server; empty: there is none, and so no champion.
        name: ``<team>.<job>``.

    Raises:
        TrackingError: MLflow does not answer.
    """
    if not uri:
        return None
    query = urlencode({"name": name, "alias": CHAMPION})
    try:
        request = urllib.request.Request(f"{uri.rstrip('/')}{ALIAS}?{query}")  # noqa: S310 - the platform's own
        with urllib.request.urlopen(request, timeout=PROBE_SECONDS) as answer:  # noqa: S310
            version = json.loads(answer.read())["model_version"]
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            return _by_client(uri, name)
        if _code(error) in NONE_THERE:
            return None
        raise TrackingError(f"MLflow at {uri} could not look up the champion of {name}: {error}") from error
    except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
        raise TrackingError(
            f"MLflow does not answer at {uri}: start it, or correct its address ({error})"
        ) from error
    tags = {tag["key"]: tag["value"] for tag in version.get("tags", ())}
    if RUN_KEY_TAG not in tags:
        return None
    return Champion(int(version["version"]), tags[RUN_KEY_TAG], tags.get(INTERVAL_END_TAG, ""))


def _by_client(uri: str, name: str) -> Champion | None:
    try:
        return find_champion(uri, name)
    except NotFoundError:
        return None


def _code(error: urllib.error.HTTPError) -> Any:  # noqa: ANN401 - whatever the server said
    try:
        return json.loads(error.read()).get("error_code")
    except (ValueError, AttributeError):
        return None


CHALLENGER = "challenger"
CHAMPION = "champion"


def register_model(
    client: MlflowClient, run: Run, name: str, model_id: str, description: str, *, challenger: bool = True
) -> int:
    """Register a logged model as a version of ``name``, unless that was done, and make it the challenger.

    A version that is champion already stays that alone, and so does the challenger if ``challenger`` is not
    asked for.

    Returns:
        The version.
    """
    version = registered_version(client, run, name)
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
    if challenger and aliases(client, name).get(CHAMPION) != version:
        client.set_registered_model_alias(name, CHALLENGER, str(version))
    return version


def registered_version(client: MlflowClient, run: Run, name: str) -> int | None:
    """Return the version of ``name`` that ``run`` produced, if it is registered."""
    found = client.search_model_versions(f"name = '{name}' and run_id = '{run.info.run_id}'")
    return min((int(version.version) for version in found), default=None)


def aliases(client: MlflowClient, name: str) -> dict[str, int]:
    """Return alias -> version of a registered model; none where there is no such model."""
    from mlflow.exceptions import MlflowException

    try:
        model = client.get_registered_model(name)
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return {}
        raise
    return {alias: int(version) for alias, version in model.aliases.items()}


def _create_registered_model(client: MlflowClient, name: str, tags: Mapping[str, str]) -> None:
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name, tags=dict(tags))
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


def own_tags(run: Run) -> dict[str, str]:
    """Return the tags that DMLS set on a run."""
    return {key: value for key, value in run.data.tags.items() if key.startswith("dmls.")}
