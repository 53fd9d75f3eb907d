"""Where the platform's services are, from the environment or the embedded platform's state."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, fields
from pathlib import Path

from dmls_core.errors import PlatformError

STATE_FOLDER = ".dmls"
"""Name of the folder that holds the embedded platform's whole state."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Addresses of the services. Each field can be set by an environment variable (``ENVIRONMENT``).

    Attributes:
        root: ``s3://bucket/prefix`` or a folder; every key of the layout is below it.
        mlflow_uri: MLflow tracking and registry server.
        triton_http: ``host:port`` of Triton's HTTP endpoint; several replicas are separated by commas.
        triton_grpc: ``host:port`` of Triton's gRPC endpoint, or endpoints in the same order.
        triton_repository: folder or ``s3://`` URL of the model repository as this process sees it.
        triton_key: what Triton asks for before it loads a model; empty where it loads for anyone.
        airflow_url: base URL of Airflow's API server.
        airflow_username: user for Airflow's REST API.
        airflow_password: its password.
    """

    root: str = ""
    mlflow_uri: str = ""
    triton_http: str = ""
    triton_grpc: str = ""
    triton_repository: str = ""
    triton_key: str = ""
    airflow_url: str = ""
    airflow_username: str = ""
    airflow_password: str = ""

    def require(self, name: str) -> str:
        """Return the setting ``name``.

        Raises:
            PlatformError: it is not set; the message names the variable that sets it.
        """
        value: str = getattr(self, name)
        if not value:
            raise PlatformError(
                f"setting {name!r} is empty: set {ENVIRONMENT[name]}, or start the embedded platform "
                "with `dmls up`"
            )
        return value


ENVIRONMENT: dict[str, str] = {
    "root": "DMLS_ROOT",
    "mlflow_uri": "MLFLOW_TRACKING_URI",
    "triton_http": "DMLS_TRITON_HTTP",
    "triton_grpc": "DMLS_TRITON_GRPC",
    "triton_repository": "DMLS_TRITON_REPOSITORY",
    "triton_key": "DMLS_TRITON_KEY",
    "airflow_url": "DMLS_AIRFLOW_URL",
    "airflow_username": "DMLS_AIRFLOW_USERNAME",
    "airflow_password": "DMLS_AIRFLOW_PASSWORD",
}
"""Setting -> the environment variable that sets it."""

TRITON_KEY_HEADER = "dmls-key"
"""Header with ``triton_key`` over HTTP; over gRPC Triton puts ``triton-grpc-protocol-`` before its name."""

INFERENCE_LOG = "DMLS_INFERENCE_LOG"
"""Variable of Triton's own environment: the folder that sampled requests are written to; else none are."""

METRICS_TOKEN = "DMLS_METRICS_TOKEN"  # noqa: S105 - the variable's name
"""Variable of Airflow's API server: the token that Prometheus sends; without it nobody is answered."""

STATE_FILE = "platform.json"
"""Written by the embedded platform, mode 600: ``{"settings": {...}, "environment": {...}, ...}``."""


def state_folder() -> Path:
    """Return the embedded platform's state folder.

    ``DMLS_HOME`` if set, else the nearest ``.dmls`` in the working directory or above it, else
    ``./.dmls`` (which may not exist yet).
    """
    if home := os.environ.get("DMLS_HOME"):
        return Path(home).absolute()
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / STATE_FOLDER).is_dir():
            return folder / STATE_FOLDER
    return here / STATE_FOLDER


def load_settings() -> Settings:
    """Read the settings; a variable of the environment wins over the embedded platform's state.

    Credentials that a client library reads by itself (``AWS_*``) are put into the environment when
    they come from the embedded platform and are not set already.
    """
    state: dict[str, dict[str, str]] = {}
    file = state_folder() / STATE_FILE
    if file.is_file():
        state = json.loads(file.read_text())
    for name, value in state.get("environment", {}).items():
        os.environ.setdefault(name, value)
    stored = state.get("settings", {})
    names = [field.name for field in fields(Settings)]
    return Settings(**{n: os.environ.get(ENVIRONMENT[n], "") or stored.get(n, "") for n in names})
