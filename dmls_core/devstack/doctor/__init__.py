"""What this machine and its platform have, what they lack, and how to get it."""

from __future__ import annotations

from dmls_core.devstack.doctor.check import Check
from dmls_core.devstack.doctor.examine import examine

__all__ = ["Check", "examine"]
