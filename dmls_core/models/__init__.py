"""The models: what a spec can ask for, and what each engine makes of it."""

from __future__ import annotations

from dmls_core.models.catalogue import CATALOGUE
from dmls_core.models.engine_space import for_engine
from dmls_core.models.load import load_spec
from dmls_core.models.metrics_catalogue import METRICS

__all__ = ["CATALOGUE", "METRICS", "for_engine", "load_spec"]
