"""The entry point ``apache_airflow_provider``, for Airflow's list of providers."""

from __future__ import annotations

from typing import Any

from dmls_core import __version__


def get_provider_info() -> dict[str, Any]:
    """Return the provider's name, description, version, operator links and file systems."""
    return {
        "package-name": "dmls",
        "name": "DMLS",
        "description": "Tuned, validated, served models from a TOML spec and a CSV.",
        "versions": [__version__],
        "extra-links": ["dmls_core.airflow.links.MlflowRunLink", "dmls_core.airflow.links.ReportLink"],
        "filesystems": ["dmls_core.airflow.sources.hdfs"],
    }
