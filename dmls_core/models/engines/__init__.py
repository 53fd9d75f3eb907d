"""What fits models: one module per library and device behind the protocol ``Engine``."""

from __future__ import annotations

from dmls_core.models.engines.base import Engine, Fitted
from dmls_core.models.engines.loader import load_engine, missing_packages
from dmls_core.models.engines.parameters import effective

__all__ = ["Engine", "Fitted", "effective", "load_engine", "missing_packages"]
