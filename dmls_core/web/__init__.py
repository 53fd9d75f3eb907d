"""The DMLS page in Airflow and its REST API: a FastAPI app behind Airflow's login and access control."""

from __future__ import annotations

PREFIX = "/dmls"
"""Path at which Airflow's API server mounts the app."""

METRICS_PREFIX = "/dmls-metrics"

AIRFLOW = "dmls.airflow"
"""Key of Airflow's own app in the scope of a request."""
