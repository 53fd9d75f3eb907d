"""The embedded platform: Airflow, S3, MLflow and Triton, all real, on one machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dmls_core.devstack.platform import Platform
    from dmls_core.devstack.state import ServiceState, State

__all__ = ["Platform", "ServiceState", "State"]


def __getattr__(name: str) -> object:
    # Lazy: the launcher of each service is in this package and must start at once.
    if name == "Platform":
        from dmls_core.devstack.platform import Platform

        return Platform
    if name in ("ServiceState", "State"):
        from dmls_core.devstack import state

        return state.State if name == "State" else state.ServiceState
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
