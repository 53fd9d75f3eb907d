"""MLflow: runs, their trials, models, the registry and its aliases.

Names are imported when they are first used: MLflow costs 2 s, and is imported when it is first reached.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dmls_core.tracking.links import model_url, run_url
    from dmls_core.tracking.recording import TrackedRun, log_run
    from dmls_core.tracking.registry import champion, champion_metric, promote

__all__ = ["TrackedRun", "champion", "champion_metric", "log_run", "model_url", "promote", "run_url"]

_MODULES = {
    "TrackedRun": "recording",
    "champion": "registry",
    "champion_metric": "registry",
    "log_run": "recording",
    "model_url": "links",
    "promote": "registry",
    "run_url": "links",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_MODULES[name]}")
    value: object = getattr(module, name)
    return value
