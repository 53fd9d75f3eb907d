"""Which version of a registered model belongs to which version in the Triton repository."""

from __future__ import annotations

from dmls_core.errors import NotFoundError, ValidationIssue
from dmls_core.tracking.champion import Champion
from dmls_core.tracking.connection import connect, reaching
from dmls_core.tracking.models import CHAMPION
from dmls_core.tracking.recording import RUN_KEY_TAG
from dmls_core.tracking.registry import INTERVAL_END_TAG, TRITON_VERSION_TAG


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
