"""What serves a model: Triton's own backend, a stand-in of the embedded platform, or the shared process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

BackendKind = Literal["genuine", "stand-in", "shared"]

_STAND_IN_FILE = "model.py"
"""What Triton reports as the runtime of a backend that is a Python file; a library has none."""


def backend_of(config: Mapping[str, Any]) -> BackendKind:
    """Return which backend serves a model, by its configuration as Triton returns it."""
    if config.get("platform") == "ensemble":
        return "shared"
    return "stand-in" if config.get("runtime") == _STAND_IN_FILE else "genuine"
