"""Reach MLflow: a client bound to one address, addresses of pages, and errors that name both."""

from __future__ import annotations

import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import quote

from dmls_core.errors import PlatformError, TrackingError

if TYPE_CHECKING:
    from mlflow import MlflowClient

PROBE_SECONDS = 10.0

# MLflow offers nothing but the environment for these: no search for git, no reports of use, no lines on
# stdout, no progress bars in logs. What the platform has set stays.
_QUIET = {
    "GIT_PYTHON_REFRESH": "quiet",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}


def connect(uri: str) -> MlflowClient:
    """Return a client of the tracking server and model registry at ``uri``.

    Raises:
        PlatformError: ``uri`` is empty.
        TrackingError: no server answers there.
    """
    if not uri:
        raise PlatformError("MLflow's address is not set: set MLFLOW_TRACKING_URI")
    _probe(uri)
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=uri, registry_uri=uri)


@contextmanager
def reaching(uri: str, doing: str) -> Iterator[None]:
    """Turn what MLflow raises into a ``TrackingError`` that names the address and the step."""
    from mlflow.exceptions import MlflowException
    from requests import RequestException

    try:
        yield
    except (MlflowException, RequestException) as error:
        raise TrackingError(f"MLflow at {uri} could not {doing}: {error}") from error


def _probe(uri: str) -> None:
    """Ask once whether a server is there: MLflow's own client would try for minutes."""
    if not uri.startswith(("http://", "https://")):
        raise PlatformError(f"{uri} is no address of an MLflow server: expected http://host:port")
    try:
        urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=PROBE_SECONDS).close()  # noqa: S310
    except urllib.error.HTTPError:
        return  # it answered
    except (OSError, http.client.HTTPException, ValueError) as error:  # no answer, or no address
        reason = getattr(error, "reason", error)
        raise TrackingError(
            f"MLflow does not answer at {uri}: start it, or correct its address ({reason})"
        ) from error


def run_url(uri: str, experiment_id: str, run_id: str) -> str:
    """Return the address of a run's page; ``uri`` is the server as a browser reaches it."""
    return f"{uri.rstrip('/')}/#/experiments/{experiment_id}/runs/{run_id}"


def report_url(run_page: str) -> str:
    """Return the address at which a run's page, as ``run_url`` returned it, shows its report."""
    return f"{run_page}/artifacts/report.html"


def model_url(uri: str, model: str, version: int) -> str:
    """Return the address of a registered model version's page."""
    return f"{uri.rstrip('/')}/#/models/{quote(model)}/versions/{version}"
