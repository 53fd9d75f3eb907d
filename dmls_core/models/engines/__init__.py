"""Engines: one class per library and device, registered under the entry point ``dmls.engines``."""

from __future__ import annotations

from dmls_core.models.engines.base import (
    Binned,
    BoostingEngine,
    Engine,
    Fitted,
    ForestEngine,
    Growing,
    GrowingForestEngine,
)
from dmls_core.models.engines.ensemble import FittedBooster, FittedEnsemble, FittedTrees

__all__ = [
    "Binned",
    "BoostingEngine",
    "Engine",
    "Fitted",
    "FittedBooster",
    "FittedEnsemble",
    "FittedTrees",
    "ForestEngine",
    "Growing",
    "GrowingForestEngine",
]
