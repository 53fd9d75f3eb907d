"""Ask MLflow's registry for the champion without MLflow's client, whose import costs 2.6 CPU seconds.

Two tasks of every run ask, and need nothing else of MLflow. A server that wants to know who asks is left to
the client, which knows every way to say so.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlencode

from dmls_core.errors import NotFoundError, TrackingError
from dmls_core.tracking.champion import Champion, find_champion
from dmls_core.tracking.connection import PROBE_SECONDS
from dmls_core.tracking.models import CHAMPION
from dmls_core.tracking.recording import RUN_KEY_TAG
from dmls_core.tracking.registry import INTERVAL_END_TAG

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
