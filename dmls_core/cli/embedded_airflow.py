"""Commands that read Airflow's database, with the configuration of the embedded platform if there is one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict

from dmls_core.cli.console import facts, print_json
from dmls_core.errors import PlatformError
from dmls_core.settings import state_folder


@contextmanager
def _use_embedded_airflow() -> Iterator[None]:
    """Configure Airflow as the embedded platform does, if there is one, while Airflow is imported.

    Raises:
        PlatformError: Airflow is not installed here.
    """
    import os

    from dmls_core.devstack.private_files import read_json

    service = read_json(state_folder() / "services" / "airflow-scheduler.json") or {"environment": {}}
    # Its hooks log each connection that they use.
    os.environ |= service["environment"] | {"AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING"}
    try:
        # On import, Airflow binds its log to stdout, where only the answer belongs.
        with redirect_stdout(sys.stderr):
            yield
    except ImportError as error:
        raise PlatformError(
            f"Airflow is not installed here ({error}): run this where its scheduler runs"
        ) from error


def print_capacity(jobs: float, rows: float, *, as_json: bool) -> None:
    """Print what the platform needs for ``jobs`` times its jobs and ``rows`` times their rows.

    Raises:
        PlatformError: Airflow is not installed here, or the store does not answer.
    """
    from dmls_core.monitoring.capacity import describe_plan

    with _use_embedded_airflow():
        from dmls_core.airflow import database
        from dmls_core.airflow.operations.capacity import plan_platform

    with database.create_session() as session:
        plan = plan_platform(session, jobs=jobs, rows=rows)
    if as_json:
        print_json({"schema": 1, **asdict(plan)})
        return
    facts(describe_plan(plan))
