"""Nested search of forests: one large forest also yields the scores of all smaller ones."""

from __future__ import annotations

from dmls_core.search.forest.objective import ForestObjective

__all__ = ["ForestObjective"]
