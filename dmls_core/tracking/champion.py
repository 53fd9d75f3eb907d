"""Which run made the champion, and tags on its version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dmls_core.errors import NotFoundError, ValidationIssue
from dmls_core.tracking.connection import connect, reaching
from dmls_core.tracking.models import CHALLENGER, CHAMPION, aliases
from dmls_core.tracking.recording import RUN_KEY_TAG
from dmls_core.tracking.registry import INTERVAL_END_TAG


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
