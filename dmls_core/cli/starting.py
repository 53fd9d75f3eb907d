"""Starting the embedded platform before a person's eyes, and telling where its services are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dmls_core.cli.console import facts
from dmls_core.errors import PlatformError
from dmls_core.settings import STATE_FILE

if TYPE_CHECKING:
    from dmls_core.devstack.platform import Platform, State


def start(platform: Platform) -> State:
    """Start the platform and tell of each step.

    Raises:
        PlatformError: a service does not start.
    """
    from dmls_core.cli.progress import StepLines
    from dmls_core.cli.trainer_image import prepare_image

    prepare_image()
    with StepLines() as steps:
        return platform.up(steps)


def print_addresses(state: State) -> None:
    """Print where each service is found, and who may enter."""
    settings = state.settings
    if settings is None:
        raise PlatformError("the platform is down")
    urls = {service.name: service.url for service in state.services}
    facts(
        [
            ("Airflow", f"{settings.airflow_url}  user {settings.airflow_username}"),
            ("MLflow", settings.mlflow_uri),
            ("S3", f"{urls['s3']}  {settings.root}"),
            ("Triton", f"http://{settings.triton_http}  grpc://{settings.triton_grpc}"),
            ("passwords, keys", str(state.folder / STATE_FILE)),
            ("logs", str(state.folder / "logs")),
        ]
    )
