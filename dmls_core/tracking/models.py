"""A run's model in MLflow: logged once, registered once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dmls_core.tracking.model_folder import built_model

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel, Run

CHALLENGER = "challenger"
CHAMPION = "champion"
LOGGED_NAME = "model"


def log_model(client: MlflowClient, run: Run, folder: Path, versions: Mapping[str, str]) -> str:
    """Upload the model of ``run`` and return its id; an upload that broke off is done again.

    Args:
        client: the tracking server.
        run: the training run.
        folder: the run's ``model/`` folder.
        versions: versions of the libraries at the training.
    """
    from mlflow.entities import LoggedModelOutput, LoggedModelStatus
    from mlflow.models import Model

    model = _logged(client, run) or client.create_logged_model(
        run.info.experiment_id, name=LOGGED_NAME, source_run_id=run.info.run_id, tags=_own_tags(run)
    )
    if model.status != LoggedModelStatus.READY:
        about = Model(artifact_path=model.artifact_location, run_id=run.info.run_id, model_id=model.model_id)
        with built_model(folder, about, versions) as built:
            client.log_model_artifacts(model.model_id, str(built))
        client.log_outputs(run.info.run_id, [LoggedModelOutput(model.model_id, 0)])
        client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
    return str(model.model_id)


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
    tags = _own_tags(run)
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


def _logged(client: MlflowClient, run: Run) -> LoggedModel | None:
    found = client.search_logged_models(
        [run.info.experiment_id], filter_string=f"source_run_id = '{run.info.run_id}'"
    )
    return found[0] if found else None


def _create_registered_model(client: MlflowClient, name: str, tags: Mapping[str, str]) -> None:
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name, tags=dict(tags))
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


def _own_tags(run: Run) -> dict[str, str]:
    return {key: value for key, value in run.data.tags.items() if key.startswith("dmls.")}
