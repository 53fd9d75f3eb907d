"""Which column is to be predicted, and is it a class or a number?"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dmls_core.intake.sniff.columns import FEW, Column
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
"""Distinct texts of a column that may still be classes."""


def guess_target(columns: Sequence[Column]) -> Column | None:
    """Return the column that is most likely to be predicted; None if none can be.

    Its name says it best; next, that it comes last, as in most data sets, or first.
    """
    fit = [(position, column) for position, column in enumerate(columns) if can_be_target(column)]
    if not fit:
        return None
    return max(fit, key=lambda placed: _score(*placed, last=len(columns) - 1))[1]


def can_be_target(column: Column) -> bool:
    """Say whether a column may be predicted: a number or a few classes, and more than one value."""
    return column.kind in ("number", "code", "category") and column.distinct != 1


def guess_task(column: Column) -> Task:
    """Say whether a target is a class or a number.

    Text is a class. Whole numbers are classes if there are two, or a few that come again and again.
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
