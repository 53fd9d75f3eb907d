"""What serves a forest: NVIDIA's FIL backend, the stand-in of the embedded platform, or a shared process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from dmls_core.serving.triton.client import TritonClient

FilBackend = Literal["genuine", "stand-in", "shared"]

STAND_IN_FILE = "model.py"
"""What Triton reports as the runtime of a backend that is a Python file; a library has none."""

DESCRIPTIONS: dict[FilBackend, str] = {
    "genuine": "genuine FIL backend",
    "stand-in": "stand-in for the FIL backend (Treelite on the CPU)",
    "shared": "process that small models share (Treelite on the CPU)",
}


def fil_backend(client: TritonClient, model: str) -> FilBackend:
    """Return which backend serves a loaded forest; ServingError: it is not loaded, or Triton is gone."""
    return backend_of(client.config(model))


def backend_of(config: Mapping[str, Any]) -> FilBackend:
    """Return which backend serves a forest, by its configuration as Triton returns it."""
    if config.get("platform") == "ensemble":
        return "shared"
    return "stand-in" if config.get("runtime") == STAND_IN_FILE else "genuine"
