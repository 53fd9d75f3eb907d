"""Trials of boosted trees: one booster answers every smaller number of rounds."""

from __future__ import annotations

from dmls_core.search.boosted.evaluator import BoostedEvaluator

__all__ = ["BoostedEvaluator"]
