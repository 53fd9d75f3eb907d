"""Open stores with the credentials of an Airflow connection."""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING

from dmls_core.store import Store, open_store, store_class

if TYPE_CHECKING:
    from dmls_core.airflow.settings import AirflowSettings
    from dmls_core.serving import Repository


def open_root(settings: AirflowSettings, *, interactive: bool = False) -> Store:
    """Open the store at ``settings.root``; if ``interactive``, fail within seconds if the service is down."""
    return open_with_connection(settings.root, settings.aws_conn_id, interactive=interactive)


def open_repository(settings: AirflowSettings) -> Repository:
    """Open Triton's model repository with the same credentials as the store."""
    from dmls_core.serving import Repository

    url = settings.triton_repository
    return Repository(url, store=open_with_connection(url, settings.aws_conn_id) if url else None)


def open_with_connection(url: str, connection_id: str, *, interactive: bool = False) -> Store:
    """Open the store at ``url`` with the Airflow hook that its class names, if it names one."""
    path = store_class(url).hook_class
    hook = pkgutil.resolve_name(path)(connection_id) if path else None
    return open_store(url, hook=hook, interactive=interactive)
