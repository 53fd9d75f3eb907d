"""Nested search of forests: one forest that has grown large answers for every smaller one."""

from __future__ import annotations

from dmls_core.search.forest.objective import ForestObjective
from dmls_core.search.forest.searcher import NestedForestSearcher

__all__ = ["ForestObjective", "NestedForestSearcher"]
