"""Models: the catalogue, the engines that fit models, and the metrics that score them."""

from __future__ import annotations

from dmls_core.models.catalogue import CATALOGUE, engine_class, load_engine
from dmls_core.models.load import for_engine, load_spec
from dmls_core.models.metrics import METRICS

__all__ = ["CATALOGUE", "METRICS", "engine_class", "for_engine", "load_engine", "load_spec"]
