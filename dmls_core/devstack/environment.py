"""The environment that every process of the platform inherits."""

from __future__ import annotations

import os

from dmls_core.devstack.context import Context
from dmls_core.devstack.marks import ID_VARIABLE

FOREIGN = ("AIRFLOW", "_AIRFLOW", "AWS_", "DMLS_", "MLFLOW_", "_MLFLOW", "PG", "SUPERVISOR_", "WEED_")
"""Prefixes of variables that would turn a service towards something else than this platform."""

LOOPBACK = "127.0.0.1,localhost"


def base_environment(context: Context) -> dict[str, str]:
    """Return this process's environment without what belongs to other platforms, and with the mark."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return {
        **inherited,
        ID_VARIABLE: context.identity.id,
        "TMPDIR": str(context.runtime / "tmp"),
        **_unproxied(),
        # setproctitle would overwrite the environment that the mark is in.
        "SPT_NOENV": "1",
    }


def spare_loopback_from_proxies() -> None:
    """Have this process reach the services directly, whatever proxy its user has set."""
    os.environ.update(_unproxied())


def _unproxied() -> dict[str, str]:
    known = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    value = known if known.startswith(LOOPBACK) else ",".join(filter(None, (LOOPBACK, known)))
    return {"NO_PROXY": value, "no_proxy": value}
