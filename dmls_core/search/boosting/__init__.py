"""Search of boosted trees: one booster also yields the scores of all smaller numbers of rounds."""

from __future__ import annotations

from dmls_core.search.boosting.objective import BoostingObjective

__all__ = ["BoostingObjective"]
