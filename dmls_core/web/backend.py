"""The services behind the page, opened once and shared by all requests."""

from __future__ import annotations

import json
from functools import cache

from airflow.configuration import conf

from dmls_core.airflow.connections import open_root
from dmls_core.airflow.settings import BUNDLE_CLASSPATH, AirflowSettings, airflow_settings
from dmls_core.store import Store
from dmls_core.store import open_store as open_at

CONNECT_SECONDS, READ_SECONDS, ATTEMPTS = 3, 10, 3
"""How long a page waits for S3 before it says so; the connection's own patience is minutes."""

CONNECTIONS = 32


@cache
def open_store() -> Store:
    """Return the store at the platform's root, for what somebody waits for."""
    return quick_store(airflow_settings())


def quick_store(settings: AirflowSettings) -> Store:
    """Open the store at ``settings.root`` so that it fails soon where S3 does not answer."""
    if not settings.root.startswith("s3://"):
        return open_at(settings.root)
    from airflow.providers.amazon.aws.hooks.s3 import S3Hook
    from botocore.config import Config

    patience = Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        retries={"total_max_attempts": ATTEMPTS, "mode": "standard"},
        max_pool_connections=CONNECTIONS,
    )
    config = S3Hook(settings.aws_conn_id).config.merge(patience)
    return open_at(settings.root, client=S3Hook(settings.aws_conn_id, config=config).get_conn())


@cache
def open_store_for_uploads() -> Store:
    """Return the same store with the patience that large files need."""
    return open_root(airflow_settings())


def bundle_name() -> str:
    """Return the name that the platform team gave DMLS's bundle; empty where there is none."""
    entries = json.loads(conf.get("dag_processor", "dag_bundle_config_list"))
    return next((str(entry["name"]) for entry in entries if entry["classpath"] == BUNDLE_CLASSPATH), "")
