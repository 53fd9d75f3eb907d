"""Services behind the page and the REST API; no module here knows of routes or templates."""

from __future__ import annotations

from functools import cache

from dmls_core.airflow.settings import airflow_settings, open_root
from dmls_core.store import Store


@cache
def open_store() -> Store:
    """Return the store with short timeouts, since a user waits for the response."""
    return open_root(airflow_settings(), interactive=True)


@cache
def open_store_for_uploads() -> Store:
    """Return the store with the timeouts of its Airflow connection, which large uploads need."""
    return open_root(airflow_settings())
