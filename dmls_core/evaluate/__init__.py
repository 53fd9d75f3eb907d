"""How good a model is: metrics, scores on the holdout, and the report page."""

from __future__ import annotations

from dmls_core.evaluate.holdout import HoldoutScores, score_holdout
from dmls_core.evaluate.metrics import compute, scorer

__all__ = ["HoldoutScores", "compute", "score_holdout", "scorer"]
