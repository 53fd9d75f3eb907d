"""Parse and validate specs: TOML in, an immutable ``Spec`` out, or every error with its position."""

from __future__ import annotations

from dmls_core.spec.data_table import Data
from dmls_core.spec.definitions import (
    Choice,
    Hyperparameter,
    HyperparameterDefinition,
    ModelDefinition,
    Range,
    Scalar,
    fixed,
    space_size,
)
from dmls_core.spec.issues import IssueCollector
from dmls_core.spec.json_schema import json_schema
from dmls_core.spec.parse import parse_spec
from dmls_core.spec.spec import SCHEMA, ModelSearch, Spec
from dmls_core.spec.tables import (
    ColumnExpectation,
    Columns,
    Deploy,
    Drift,
    Expectations,
    Search,
)

__all__ = [
    "SCHEMA",
    "Choice",
    "ColumnExpectation",
    "Columns",
    "Data",
    "Deploy",
    "Drift",
    "Expectations",
    "Hyperparameter",
    "HyperparameterDefinition",
    "IssueCollector",
    "ModelDefinition",
    "ModelSearch",
    "Range",
    "Scalar",
    "Search",
    "Spec",
    "fixed",
    "json_schema",
    "parse_spec",
    "space_size",
]
