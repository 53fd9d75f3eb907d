"""MLflow: runs, their trials, models, the registry and its aliases.

Names are imported when they are first used: MLflow costs 2 s, and is imported when it is first reached.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dmls_core.tracking.champion import Champion, find_challenger, find_champion, tag_version
    from dmls_core.tracking.deployed import champions, registered_as, served_as
    from dmls_core.tracking.links import model_url, report_url, run_url
    from dmls_core.tracking.recording import TrackedRun, log_run
    from dmls_core.tracking.registry import promote
    from dmls_core.tracking.served import champion_of

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
    "Champion": "champion",
    "TrackedRun": "recording",
    "champion_of": "served",
    "champions": "deployed",
    "find_challenger": "champion",
    "find_champion": "champion",
    "log_run": "recording",
    "model_url": "links",
    "promote": "registry",
    "registered_as": "deployed",
    "report_url": "links",
    "run_url": "links",
    "served_as": "deployed",
    "tag_version": "champion",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_MODULES[name]}")
    value: object = getattr(module, name)
    return value
