"""MLflow: runs, their trials, models, the registry and its aliases.

Names are imported when they are first used: MLflow costs 2 s, and is imported when it is first reached.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dmls_core.tracking.connection import model_url, report_url, run_url
    from dmls_core.tracking.registry import (
        Champion,
        champion_of,
        champions,
        find_challenger,
        find_champion,
        promote,
        registered_as,
        served_as,
        tag_version,
    )
    from dmls_core.tracking.runs import TrackedRun, log_run

__all__ = [
    "Champion",
    "TrackedRun",
    "champion_of",
    "champions",
    "find_challenger",
    "find_champion",
    "log_run",
    "model_url",
    "promote",
    "registered_as",
    "report_url",
    "run_url",
    "served_as",
    "tag_version",
]

_MODULES = {
    "Champion": "registry",
    "TrackedRun": "runs",
    "champion_of": "registry",
    "champions": "registry",
    "find_challenger": "registry",
    "find_champion": "registry",
    "log_run": "runs",
    "model_url": "connection",
    "promote": "registry",
    "registered_as": "registry",
    "report_url": "connection",
    "run_url": "connection",
    "served_as": "registry",
    "tag_version": "registry",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_MODULES[name]}")
    value: object = getattr(module, name)
    return value
