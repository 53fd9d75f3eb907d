"""Drift: a profile of what a model was trained on, kept with it, and new data compared with that.

Names are imported when they are first used: reading data needs polars, comparing needs SciPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dmls_core.monitoring.check import check_files, fetch_model
    from dmls_core.monitoring.comparison import compare
    from dmls_core.monitoring.drift import ColumnDrift, Drift
    from dmls_core.monitoring.incoming import Incoming, read_incoming
    from dmls_core.monitoring.page import drift_page
    from dmls_core.monitoring.profile import Column, Profile, Values, profile_table, with_predictions
    from dmls_core.monitoring.prometheus import metrics_text

__all__ = [
    "Column",
    "ColumnDrift",
    "Drift",
    "Incoming",
    "Profile",
    "Values",
    "check_files",
    "compare",
    "drift_page",
    "fetch_model",
    "metrics_text",
    "profile_table",
    "read_incoming",
    "with_predictions",
]

_MODULES = {
    "Column": "profile",
    "ColumnDrift": "drift",
    "Drift": "drift",
    "Incoming": "incoming",
    "Profile": "profile",
    "Values": "profile",
    "check_files": "check",
    "compare": "comparison",
    "drift_page": "page",
    "fetch_model": "check",
    "metrics_text": "prometheus",
    "profile_table": "profile",
    "read_incoming": "incoming",
    "with_predictions": "profile",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value
