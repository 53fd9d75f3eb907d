"""``dmls plan --platform``: the capacity plan of the platform."""

from __future__ import annotations

from dataclasses import asdict

from dmls_core.cli.console import facts, print_json
from dmls_core.cli.platform_commands import use_embedded_airflow
from dmls_core.monitoring.capacity import describe_plan


def print_capacity(jobs: float, rows: float, *, as_json: bool) -> None:
    """Print what the platform needs for ``jobs`` times its jobs and ``rows`` times their rows.

    Raises:
        PlatformError: Airflow is not installed here, or the store does not answer.
    """
    with use_embedded_airflow():
        from dmls_core.airflow import metadata
        from dmls_core.airflow.capacity import plan_platform

    with metadata.create_session() as session:
        plan = plan_platform(session, jobs=jobs, rows=rows)
    if as_json:
        print_json({"schema": 1, **asdict(plan)})
        return
    facts(describe_plan(plan))
