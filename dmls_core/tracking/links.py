"""Addresses of MLflow's pages."""

from __future__ import annotations

from urllib.parse import quote


def run_url(uri: str, experiment_id: str, run_id: str) -> str:
    """Return the address of a run's page; ``uri`` is the server as a browser reaches it."""
    return f"{uri.rstrip('/')}/#/experiments/{experiment_id}/runs/{run_id}"


def report_url(run_page: str) -> str:
    """Return the address at which a run's page, as ``run_url`` returned it, shows its report."""
    return f"{run_page}/artifacts/report.html"


def model_url(uri: str, model: str, version: int) -> str:
    """Return the address of a registered model version's page."""
    return f"{uri.rstrip('/')}/#/models/{quote(model)}/versions/{version}"
