"""The services behind the page, opened once and shared by all requests."""

from __future__ import annotations

import json
from functools import cache

from airflow.configuration import conf

from dmls_core.airflow.connections import open_root
from dmls_core.airflow.settings import BUNDLE_CLASSPATH, airflow_settings
from dmls_core.store import Store


@cache
def open_store() -> Store:
    """Return the store at the platform's root; it fails within seconds, since a user is waiting."""
    return open_root(airflow_settings(), interactive=True)


@cache
def open_store_for_uploads() -> Store:
    """Return the same store with the timeouts that large files need."""
    return open_root(airflow_settings())


def bundle_name() -> str:
    """Return the name that the platform team gave DMLS's bundle; empty where there is none."""
    entries = json.loads(conf.get("dag_processor", "dag_bundle_config_list"))
    return next((str(entry["name"]) for entry in entries if entry["classpath"] == BUNDLE_CLASSPATH), "")
