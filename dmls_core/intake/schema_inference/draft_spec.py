"""Guess the target of a data set, and draft a spec for it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from dmls_core.errors import DataError, ValidationIssue
from dmls_core.intake.schema_inference.columns import FEW, Column
from dmls_core.spec.definitions import Task

_SURE = {"target", "label", "labels", "class", "y", "outcome", "response", "result", "ground_truth", "truth"}
_LIKELY = {
    *(
        "species",
        "diagnosis",
        "survived",
        "churn",
        "churned",
        "default",
        "fraud",
        "price",
        "quality",
        "income",
    ),
    *(
        "category",
        "type",
        "grade",
        "score",
        "rating",
        "status",
        "demand",
        "sales",
        "revenue",
        "cost",
        "amount",
    ),
    *("converted", "clicked", "returned", "approved", "defect", "failed", "failure", "yield", "value"),
}
_QUESTION = re.compile(r"^(?:is|has|was|will|did)_")

LARGEST_CLASS_COUNT = 1_000
"""Largest number of distinct texts that can be classes."""


def guess_target(columns: Sequence[Column]) -> Column | None:
    """Return the most likely target; None if no column can be one.

    The name counts most, then the position: last, as in most data sets, or first.
    """
    fit = [(position, column) for position, column in enumerate(columns) if can_be_target(column)]
    if not fit:
        return None
    return max(fit, key=lambda placed: _score(*placed, last=len(columns) - 1))[1]


def can_be_target(column: Column) -> bool:
    """Return whether a column can be a target: numbers or few classes, and more than one value."""
    return column.kind in ("number", "code", "category") and column.distinct != 1


def guess_task(column: Column) -> Task:
    """Return the task of a target.

    Text is classification. Integers are classes if there are two, or few that recur often.
    """
    if column.kind in ("category", "code"):
        return "classification"
    return (
        "classification"
        if column.whole and column.distinct == 2 and column.high is not None
        else "regression"
    )


def _score(position: int, column: Column, *, last: int) -> tuple[float, int]:
    words = column.name.strip().casefold()
    score = 0.0
    if words in _SURE:
        score = 10
    elif words in _LIKELY or _QUESTION.match(words):
        score = 5
    elif any(part in _SURE for part in re.split(r"[ _.-]+", words)):
        score = 4
    if position == last:
        score += 3
    elif position == 0:
        score += 1
    if column.kind != "number" and column.distinct <= FEW:
        score += 1
    return score, position


TRIALS = 20

MODELS: dict[Task, str] = {
    "classification": "random-forest-classifier",
    "regression": "random-forest-regressor",
}
"""The first model to try: forests are the fastest to search and need the least preparation."""

LISTED = 200
"""A spec with more features lists the excluded columns instead."""

MOST_TEXT = 100_000
"""Largest number of characters of all listed names, well below the size limit of a spec."""

_RARE = 0.4
"""Accuracy is not the metric if the rarest class has less than this part of an even share."""

_USED = ("number", "code", "category")


def draft_spec(columns: Sequence[Column], target: Column, task: Task, file: str) -> dict[str, Any]:
    """Return a spec as ``tomllib`` would read it; raise ``DataError`` if no column is left as a feature."""
    from dmls_core.models import CATALOGUE

    others = [column for column in columns if column.name != target.name]
    features = [column for column in others if column.kind in _USED]
    if not features:
        found = ", ".join(f"{column.name} ({column.kind})" for column in others[:20])
        hint = "a feature contains numbers, or text with few distinct values"
        raise DataError(ValidationIssue("no column is left as a feature", hint=hint, file=file, found=found))
    roles = _roles(features, others, target)
    if sum(len(names) for role in roles.values() for names in role) > MOST_TEXT:
        message = "a spec cannot list this many columns"
        raise DataError(ValidationIssue(message, hint="remove some", file=file))
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
    """Return a metric for classes of very different sizes; empty if the default is suitable."""
    if task != "classification" or target.distinct != len(target.top):
        return ""
    counts = [count for _, count in target.top]
    uneven = counts and min(counts) < _RARE * sum(counts) / len(counts)
    return "balanced_accuracy" if uneven else ""
