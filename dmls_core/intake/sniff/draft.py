"""A spec to begin with, made from what a sample shows and from the catalogue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dmls_core.errors import DataError, ValidationIssue
from dmls_core.intake.sniff.columns import Column
from dmls_core.spec.definitions import Task

TRIALS = 20

MODELS: dict[Task, str] = {
    "classification": "random-forest-classifier",
    "regression": "random-forest-regressor",
}
"""The model to begin with: the search over forests is the quickest, and forests forgive the most."""

LISTED = 200
"""Features up to which the spec names each; beyond, it names the columns that are left out."""

MOST_TEXT = 100_000
"""Characters of all names that a spec may list, well below how long a spec may be."""

_RARE = 0.4
"""Share of the rarest class, of an even share, below which accuracy says little."""

_USED = ("number", "code", "category")


def draft(columns: Sequence[Column], target: Column, task: Task, file: str) -> dict[str, Any]:
    """Return the spec as the document that ``tomllib`` would read.

    Args:
        columns: of the data.
        target: the one to predict.
        task: whether that is a class or a number.
        file: name of the data file, for messages.

    Raises:
        DataError: no column is left to predict from.
    """
    from dmls_core.models import CATALOGUE

    others = [column for column in columns if column.name != target.name]
    features = [column for column in others if column.kind in _USED]
    if not features:
        found = ", ".join(f"{column.name} ({column.kind})" for column in others[:20])
        hint = "a feature is a number, or text with few distinct values"
        raise DataError(
            ValidationIssue("no column is left to predict from", hint=hint, file=file, found=found)
        )
    roles = _roles(features, others, target)
    if sum(len(names) for role in roles.values() for names in role) > MOST_TEXT:
        message = "the columns are too many to be listed in a spec"
        raise DataError(ValidationIssue(message, hint="leave some out", file=file))
    model = CATALOGUE[MODELS[task]]
    document: dict[str, Any] = {
        "model": model.name,
        "n_trials": TRIALS,
        "columns": roles,
    }
    if metric := _metric(target, task):
        document["search"] = {"metric": metric}
    return document | {name: dict(table) for name, table in model.search.items()}


def _roles(features: Sequence[Column], others: Sequence[Column], target: Column) -> dict[str, Any]:
    roles: dict[str, Any] = {"target": target.name}
    used = {column.name for column in features}
    unused = [column.name for column in others if column.name not in used]
    if len(features) <= LISTED or len(features) < len(unused):
        roles["features"] = [column.name for column in features]
    elif unused:
        roles["drop"] = unused
    if categories := [column.name for column in features if column.kind == "category"]:
        roles["categorical"] = categories
    return roles


def _metric(target: Column, task: Task) -> str:
    """Return a metric for classes of very different sizes; nothing where the default will do."""
    if task != "classification" or target.distinct != len(target.top):
        return ""
    counts = [count for _, count in target.top]
    uneven = counts and min(counts) < _RARE * sum(counts) / len(counts)
    return "balanced_accuracy" if uneven else ""
