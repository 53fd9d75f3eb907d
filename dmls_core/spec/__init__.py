"""Parse and validate specs: TOML in, an immutable ``Spec`` out, or every error with its position."""

from __future__ import annotations

from dmls_core.spec.data_table import Data
from dmls_core.spec.definitions import (
    Choice,
    Hyperparameter,
    HyperparameterDefinition,
    MetricDefinition,
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
    Evaluation,
    Expectations,
    Owner,
    Resources,
    Schedule,
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
    "Evaluation",
    "Expectations",
    "Hyperparameter",
    "HyperparameterDefinition",
    "IssueCollector",
    "MetricDefinition",
    "ModelDefinition",
    "ModelSearch",
    "Owner",
    "Range",
    "Resources",
    "Scalar",
    "Schedule",
    "Search",
    "Spec",
    "fixed",
    "json_schema",
    "parse_spec",
    "space_size",
]
