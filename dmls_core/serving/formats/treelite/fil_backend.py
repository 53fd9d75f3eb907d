"""What serves a Treelite model, in words."""

from __future__ import annotations

from dmls_core.serving.triton.backends import BackendKind

FIL = "fil"
"""Triton's name of the backend."""

DESCRIPTIONS: dict[BackendKind, str] = {
    "genuine": "genuine FIL backend",
    "stand-in": "stand-in for the FIL backend (Treelite on the CPU)",
    "shared": "process that small models share (Treelite on the CPU)",
}
