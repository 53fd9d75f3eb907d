"""Connect to MLflow: a client for one address, its pages' addresses, and errors that name the address."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from dmls_core.errors import PlatformError, TrackingError

if TYPE_CHECKING:
    import ssl

    import httpx
    from mlflow import MlflowClient

_TIMEOUT_SECONDS = 10.0

# MLflow reads these from the environment only: no search for git, no telemetry, no lines on stdout, no
# progress bars in logs. Values that the platform has set stay.
_QUIET = {
    "GIT_PYTHON_REFRESH": "quiet",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}


def connect(uri: str) -> MlflowClient:
    """Return a client of the tracking server and model registry at ``uri``.

    Raises:
        PlatformError: ``uri`` is empty, or not an HTTP address.
        TrackingError: no server answers there.
    """
    request(uri, "/health")  # any answer will do
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=uri, registry_uri=uri)


@cache
def authorities() -> ssl.SSLContext:
    """Return the system's certificate authorities: httpx alone knows those of certifi only.

    Reading them takes tens of milliseconds, more than most requests.
    """
    import ssl

    return ssl.create_default_context()


def request(uri: str, path: str, **parameters: str) -> httpx.Response:
    """Send one GET request to MLflow; its own client would retry for minutes.

    Raises:
        PlatformError: ``uri`` is empty, or not an HTTP address.
        TrackingError: no server answers there.
    """
    import httpx

    if not uri:
        raise PlatformError("MLflow's address is not set: set MLFLOW_TRACKING_URI")
    if not uri.startswith(("http://", "https://")):
        raise PlatformError(f"{uri} is not the address of an MLflow server: expected http://host:port")
    url = f"{uri.rstrip('/')}{path}"
    try:
        return httpx.get(
            url,
            params=parameters,
            timeout=_TIMEOUT_SECONDS,
            follow_redirects=True,
            verify=authorities(),
            auth=_login(),
        )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        reason = str(error) or type(error).__name__
        raise TrackingError(
            f"MLflow does not answer at {uri}: start it, or correct its address ({reason})"
        ) from error


def server_version(uri: str) -> str:
    """Return the version of the server at ``uri``, which shows that it answers and knows this user.

    Raises:
        PlatformError: ``uri`` is empty, or not an HTTP address.
        TrackingError: no server answers there, or it does not know this user.
    """
    answer = request(uri, "/version")
    if answer.status_code in (401, 403):
        raise TrackingError(
            f"MLflow at {uri} does not know this user: set MLFLOW_TRACKING_USERNAME and "
            "MLFLOW_TRACKING_PASSWORD"
        )
    if answer.is_error:
        raise TrackingError(f"MLflow at {uri} is not well: HTTP status {answer.status_code}")
    return answer.text.strip()


def _login() -> tuple[str, str] | None:
    """Return user and password, from the variables that MLflow's own client reads."""
    user, password = (os.environ.get(f"MLFLOW_TRACKING_{name}") for name in ("USERNAME", "PASSWORD"))
    return (user, password) if user and password else None


@contextmanager
def reaching(uri: str, doing: str) -> Iterator[None]:
    """Turn errors of MLflow's client into a ``TrackingError`` that names the address and the step."""
    from mlflow.exceptions import MlflowException
    from requests import RequestException

    try:
        yield
    except (MlflowException, RequestException) as error:
        raise TrackingError(f"MLflow at {uri} could not {doing}: {error}") from error


def run_url(uri: str, experiment_id: str, run_id: str) -> str:
    """Return the address of a run's page; ``uri`` is the server as a browser reaches it."""
    return f"{uri.rstrip('/')}/#/experiments/{experiment_id}/runs/{run_id}"


def report_url(run_page: str) -> str:
    """Return the address of a run's report; ``run_page`` is an address from ``run_url``."""
    return f"{run_page}/artifacts/report.html"
