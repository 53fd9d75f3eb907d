"""Trials of boosted trees: one booster answers every smaller number of rounds."""

from __future__ import annotations

from dmls_core.search.boosting.objective import BoostingObjective

__all__ = ["BoostingObjective"]
