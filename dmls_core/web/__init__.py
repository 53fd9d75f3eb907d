"""The DMLS page in Airflow: a FastAPI app behind Airflow's own login and roles."""

from __future__ import annotations

PREFIX = "/dmls"
"""Where Airflow's API server mounts the app."""

AIRFLOW = "dmls.airflow"
"""Key of a request's scope under which Airflow's own app is found."""
