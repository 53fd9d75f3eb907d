"""MLflow: runs, their trials, models, the registry with its aliases, and the decision on the champion.

Names are imported on first use: MLflow takes 2 s to import, and is imported when it is first called.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dmls_core.tracking.connection import model_url, report_url, run_url
    from dmls_core.tracking.decision import Candidate, Decision, decide
    from dmls_core.tracking.registry import (
        Champion,
        champion_of,
        champions,
        find_challenger,
        find_champion,
        promote,
        promote_served,
        registered_as,
        served_as,
        tag_version,
    )
    from dmls_core.tracking.runs import TrackedRun, log_run

_MODULES = {
    "Candidate": "decision",
    "Champion": "registry",
    "Decision": "decision",
    "TrackedRun": "runs",
    "champion_of": "registry",
    "champions": "registry",
    "decide": "decision",
    "find_challenger": "registry",
    "find_champion": "registry",
    "log_run": "runs",
    "model_url": "connection",
    "promote": "registry",
    "promote_served": "registry",
    "registered_as": "registry",
    "report_url": "connection",
    "run_url": "connection",
    "served_as": "registry",
    "tag_version": "registry",
}

__all__ = [
    "Candidate",
    "Champion",
    "Decision",
    "TrackedRun",
    "champion_of",
    "champions",
    "decide",
    "find_challenger",
    "find_champion",
    "log_run",
    "model_url",
    "promote",
    "promote_served",
    "registered_as",
    "report_url",
    "run_url",
    "served_as",
    "tag_version",
]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value
