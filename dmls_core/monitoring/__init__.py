"""Drift, delayed labels, the inference log, metrics for Prometheus, and the monitor run that uses them all.

Names are imported on first use: reading data needs polars, and comparing it needs SciPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dmls_core.monitoring.drift import ColumnDrift, Drift, compare
    from dmls_core.monitoring.new_data import NewData, check_files, fetch_baseline, read_new_data
    from dmls_core.monitoring.pages import drift_page
    from dmls_core.monitoring.profile import Column, Profile, Values, profile_table, with_predictions
    from dmls_core.monitoring.prometheus import drift_metrics

__all__ = [
    "Column",
    "ColumnDrift",
    "Drift",
    "NewData",
    "Profile",
    "Values",
    "check_files",
    "compare",
    "drift_metrics",
    "drift_page",
    "fetch_baseline",
    "profile_table",
    "read_new_data",
    "with_predictions",
]

_MODULES = {
    "Column": "profile",
    "ColumnDrift": "drift",
    "Drift": "drift",
    "NewData": "new_data",
    "Profile": "profile",
    "Values": "profile",
    "check_files": "new_data",
    "compare": "drift",
    "drift_metrics": "prometheus",
    "drift_page": "pages",
    "fetch_baseline": "new_data",
    "profile_table": "profile",
    "read_new_data": "new_data",
    "with_predictions": "profile",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value
