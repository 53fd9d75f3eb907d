"""The names at the top of a spec that are not hyperparameters."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dmls_core.spec import tables
from dmls_core.spec.base import Table

KEYS = ("model", "n_trials")
"""Keys that are not tables."""

TABLES: Mapping[str, type[Table]] = MappingProxyType(
    {
        "columns": tables.Columns,
        "data": tables.Data,
        "search": tables.Search,
        "evaluation": tables.Evaluation,
        "expectations": tables.Expectations,
        "schedule": tables.Schedule,
        "deploy": tables.Deploy,
        "drift": tables.Drift,
        "resources": tables.Resources,
        "owner": tables.Owner,
    }
)
"""Tables with keys of their own."""

TAGS = "tags"
"""The table whose keys are the user's."""

RESERVED = (*KEYS, *TABLES, TAGS)
"""Every name that a hyperparameter cannot have."""
