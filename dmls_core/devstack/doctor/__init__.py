"""Checks of the machine and of its platform, each with a hint how to fix it."""

from __future__ import annotations

from dmls_core.devstack.doctor.check import Check
from dmls_core.devstack.doctor.examine import examine

__all__ = ["Check", "examine"]
