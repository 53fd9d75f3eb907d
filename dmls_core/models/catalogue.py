"""The catalogue: every model that a spec can name. Data only: no library is imported for it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dmls_core.models.families import forests, lightgbm, xgboost
from dmls_core.spec.definitions import ModelDefinition

CATALOGUE: Mapping[str, ModelDefinition] = MappingProxyType(
    {model.name: model for model in (*forests.MODELS, *xgboost.MODELS, *lightgbm.MODELS)}
)
"""Model name -> its definition."""
