"""The catalogue as plain data, for forms that write specs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dmls_core.models.catalogue import CATALOGUE
from dmls_core.spec.definitions import HyperparameterDefinition, ModelDefinition

SPREAD = 4
"""A suggested range goes from a quarter of the default value to four times that value."""

LOG_RATIO = 30
"""Ranges whose ends have at least this ratio use a log scale."""


def catalogue_form() -> dict[str, Any]:
    """Return every model with its metrics and hyperparameters, each with a suggested range."""
    return {"models": [_model(model) for model in CATALOGUE.values()]}


def suggest(model: ModelDefinition, name: str) -> dict[str, Any]:
    """Return the table that a form suggests for searching a hyperparameter.

    It is that of the model's default search space, if there is one; otherwise all choices, both booleans, or
    legal numbers around the default.
    """
    if name in model.search:
        return dict(model.search[name])
    definition = model.hyperparameters[name]
    if definition.kind == "choice":
        return {"values": list(definition.choices)}
    if definition.kind == "bool":
        return {"values": [False, True]}
    if definition.kind == "count":
        return {"values": [definition.default, *_other_counts(definition)]}
    return _range(definition)


def _range(definition: HyperparameterDefinition) -> dict[str, Any]:
    integer = definition.kind == "int"
    lowest = definition.low if definition.low is not None else 0
    highest = definition.high if definition.high is not None else float("inf")
    default = definition.default
    if isinstance(default, str) or not default:  # "none" or 0
        low, high = (max(4, lowest), 64) if integer else (0.001, 1.0)
    else:
        low, high = float(default) / SPREAD, float(default) * SPREAD
    low, high = max(low, lowest), min(high, highest)
    if integer:
        low, high = int(low), int(high)
    table: dict[str, Any] = {"min": low, "max": high}
    return {**table, "log": True} if low > 0 and high / low >= LOG_RATIO else table


def _other_counts(definition: HyperparameterDefinition) -> list[float]:
    return [value for value in (0.25, 0.5) if value != definition.default and value <= definition.share_high]


def _model(model: ModelDefinition) -> dict[str, Any]:
    return {
        "name": model.name,
        "task": model.task,
        "description": model.description,
        "engines": model.engines,
        "default_metric": model.default_metric,
        "metrics": [
            {"name": metric.name, "direction": metric.direction, "description": metric.description}
            for metric in model.metrics.values()
        ],
        "search": {name: dict(table) for name, table in model.search.items()},
        "hyperparameters": [
            _hyperparameter(model, definition) for definition in model.hyperparameters.values()
        ],
    }


def _hyperparameter(model: ModelDefinition, definition: HyperparameterDefinition) -> Mapping[str, Any]:
    return {
        "name": definition.name,
        "kind": definition.kind,
        "default": definition.default,
        "description": definition.description,
        "low": definition.low,
        "high": definition.high,
        "low_open": definition.low_open,
        "share_high": definition.share_high if definition.kind == "count" else None,
        "choices": definition.choices,
        "suggested": suggest(model, definition.name),
    }
