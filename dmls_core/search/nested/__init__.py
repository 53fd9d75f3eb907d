"""Nested search of forests: one forest that has grown large answers for every smaller one."""

from __future__ import annotations

from dmls_core.search.nested.evaluator import NestedEvaluator
from dmls_core.search.nested.searcher import NestedForestSearcher

__all__ = ["NestedEvaluator", "NestedForestSearcher"]
