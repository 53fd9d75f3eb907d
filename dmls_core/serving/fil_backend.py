"""Which FIL backend a Triton server runs: NVIDIA's, or the stand-in of the embedded platform."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from dmls_core.serving.client import TritonClient

FilBackend = Literal["genuine", "stand-in"]

STAND_IN_FILE = "model.py"
"""What Triton reports as the runtime of a backend that is a Python file; a library has none."""

DESCRIPTIONS: dict[FilBackend, str] = {
    "genuine": "genuine FIL backend",
    "stand-in": "stand-in for the FIL backend (Treelite on the CPU)",
}


def fil_backend(client: TritonClient, model: str) -> FilBackend:
    """Return which backend serves a loaded forest; ServingError: it is not loaded, or Triton is gone."""
    return backend_of(client.config(model))


def backend_of(config: Mapping[str, Any]) -> FilBackend:
    """Return which backend serves a forest, by its configuration as Triton returns it."""
    return "stand-in" if config.get("runtime") == STAND_IN_FILE else "genuine"
