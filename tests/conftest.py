"""Fixtures that every kind of test may use."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A busy machine is no defect: what must be quick is measured in CPU time where it is tested.
settings.register_profile("dmls", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("dmls")

pytest_plugins = [
    "tests.services.browser",
    "tests.services.demo_platform",
    "tests.services.docker_engine",
    "tests.services.mlflow_server",
    "tests.services.postgres_server",
    "tests.services.prometheus_server",
    "tests.services.seaweed",
    "tests.services.triton_server",
]
