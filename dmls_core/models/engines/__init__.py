"""What fits models: one module per library and device behind the protocol ``Engine``."""

from __future__ import annotations

from dmls_core.models.engines.base import Binned, BoostingEngine, Engine, FetchingEngine, Fitted, Growing
from dmls_core.models.engines.loader import load_engine, load_reader, missing_packages
from dmls_core.models.engines.parameters import effective

__all__ = [
    "Binned",
    "BoostingEngine",
    "Engine",
    "FetchingEngine",
    "Fitted",
    "Growing",
    "effective",
    "load_engine",
    "load_reader",
    "missing_packages",
]
