"""The spec: TOML in, a validated and immutable ``Spec`` out, or every error with its place."""

from __future__ import annotations

from dmls_core.spec.definitions import (
    HyperparameterDefinition,
    MetricDefinition,
    ModelDefinition,
    Scalar,
)
from dmls_core.spec.findings import Findings
from dmls_core.spec.hyperparameters import Choice, Hyperparameter, Range, fixed, space_size
from dmls_core.spec.json_schema import json_schema
from dmls_core.spec.model import SCHEMA, ModelSearch, Spec
from dmls_core.spec.parse import parse_spec
from dmls_core.spec.tables import (
    ColumnExpectation,
    Columns,
    Data,
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
    "Findings",
    "Hyperparameter",
    "HyperparameterDefinition",
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
