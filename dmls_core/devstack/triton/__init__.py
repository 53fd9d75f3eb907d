"""Triton: a genuine server with its FIL backend if one is installed, else PyTriton's with a stand-in."""

from __future__ import annotations

from dmls_core.devstack.triton.server import (
    PORTS,
    TritonServer,
    find_genuine,
    find_server,
    triton_service,
)

__all__ = ["PORTS", "TritonServer", "find_genuine", "find_server", "triton_service"]
