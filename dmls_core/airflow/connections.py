"""Open the store, and credentials for the trainer, from Airflow's own connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dmls_core.store import Store, open_store

if TYPE_CHECKING:
    from dmls_core.airflow.settings import AirflowSettings
    from dmls_core.serving import Repository


def open_root(settings: AirflowSettings) -> Store:
    """Open the store at ``settings.root`` with the credentials of ``settings.aws_conn_id``."""
    return _open(settings, settings.root)


def open_repository(settings: AirflowSettings) -> Repository:
    """Open Triton's repository; one in S3 with the same credentials as the store."""
    from dmls_core.serving import Repository

    url = settings.triton_repository
    return Repository(url, store=_open(settings, url) if url.startswith("s3://") else None)


def _open(settings: AirflowSettings, url: str) -> Store:
    if not url.startswith("s3://"):
        return open_store(url)
    from airflow.providers.amazon.aws.hooks.s3 import S3Hook

    return open_store(url, client=S3Hook(settings.aws_conn_id).get_conn())


def store_environment(settings: AirflowSettings) -> dict[str, str]:
    """Return the environment variables with which boto3 in the trainer reaches the store."""
    if not settings.root.startswith("s3://"):
        return {}
    from airflow.providers.amazon.aws.hooks.s3 import S3Hook

    hook = S3Hook(settings.aws_conn_id)
    credentials = hook.get_credentials()
    environment = {
        "AWS_ACCESS_KEY_ID": credentials.access_key,
        "AWS_SECRET_ACCESS_KEY": credentials.secret_key,
        "AWS_SESSION_TOKEN": credentials.token,
        "AWS_DEFAULT_REGION": hook.region_name or "us-east-1",
        "AWS_ENDPOINT_URL": hook.conn_config.endpoint_url,
    }
    return {name: value for name, value in environment.items() if value}
