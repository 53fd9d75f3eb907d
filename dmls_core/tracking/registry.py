"""Which version of a model is the champion."""

from __future__ import annotations

from datetime import UTC, datetime

from dmls_core.errors import NotFoundError
from dmls_core.tracking.connection import connect, reaching
from dmls_core.tracking.models import CHALLENGER, CHAMPION, aliases

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
