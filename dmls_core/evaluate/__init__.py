"""Evaluation: metrics, holdout scores, champion against challenger, diagnostics and the report."""

from __future__ import annotations

from dmls_core.evaluate.checks import Evidence
from dmls_core.evaluate.comparison import Comparison, compare
from dmls_core.evaluate.diagnostics import Diagnostics, HoldoutScores, diagnose, score_holdout
from dmls_core.models.metrics import compute, scorer

__all__ = [
    "Comparison",
    "Diagnostics",
    "Evidence",
    "HoldoutScores",
    "compare",
    "compute",
    "diagnose",
    "score_holdout",
    "scorer",
]
