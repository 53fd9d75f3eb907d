"""How good a model is: metrics, scores on the holdout, what stands behind them, and the report page."""

from __future__ import annotations

from dmls_core.evaluate.checks import Evidence
from dmls_core.evaluate.comparison import Comparison, compare
from dmls_core.evaluate.holdout import HoldoutScores, score_holdout
from dmls_core.evaluate.insight import Insight, examine
from dmls_core.models.metrics import compute, scorer

__all__ = [
    "Comparison",
    "Evidence",
    "HoldoutScores",
    "Insight",
    "compare",
    "compute",
    "examine",
    "score_holdout",
    "scorer",
]
