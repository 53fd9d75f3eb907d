"""Guess which column of a sample is to be predicted, and find columns that give it away."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np

from dmls_core.data.encoder import is_missing, number
from dmls_core.data.table_reader import missing_column
from dmls_core.errors import DataError
from dmls_core.intake.schema_inference.draft import FEW, Column
from dmls_core.spec.definitions import Task

_TARGETS = {
    *("target", "label", "labels", "outcome", "response", "ground_truth", "truth"),
    *("species", "diagnosis", "survived", "churn", "churned", "fraud", "default"),
}
"""Names of targets and of little else."""

_OFTEN = {"class", "classes", "y", "result"}
"""Names of targets, but also of features: a class of travel, a coordinate."""

_LIKELY = {
    *("price", "quality", "income", "category", "type", "grade", "score", "rating", "status", "demand"),
    *("sales", "revenue", "cost", "amount", "converted", "clicked", "returned", "approved", "defect"),
    *("failed", "failure", "yield", "value"),
}
_QUESTION = re.compile(r"^(?:is|has|was|will|did)_")

_CLEAR = 8
"""Score of a column whose name, or name and position, are those of a target."""

_MARGIN = 3
"""A guess is certain if no other column comes so close."""

_CANDIDATES = 5
"""Number of likely targets to report."""

_PAIRS = 100
"""Largest number of columns of which all pairs are compared; of more, only those with the target."""

_GROUP = 3
"""Smallest average number of rows per value of a column that gives another one away."""

_AGREEING_ROWS = 10
"""Smallest number of rows in a group, outside of the most frequent class: fewer agree by chance."""

_LINEAR = 0.9999
"""Correlation from which two numbers are the same one in other units."""

_FIRST = 20
"""Rows that show most columns to be unrelated."""


@dataclass(frozen=True, slots=True)
class Relation:
    """``column`` determines ``other`` in every row of the sample; ``both`` if also vice versa."""

    column: str
    other: str
    both: bool

    @property
    def message(self) -> str:
        """Return what to do about it."""
        if self.both:
            return f"{self.column} and {self.other} hold the same information: use one of them"
        return f"{self.column} gives {self.other} away: as a feature, it must be known when you predict"


@dataclass(frozen=True, slots=True)
class TargetGuess:
    """The most likely target.

    Attributes:
        certain: whether its name, or name and position, leave no doubt.
        likely: names of likely targets, most likely first; the guess is the first.
        relations: columns that give away others, such as a second spelling of the target.
    """

    column: Column
    certain: bool
    likely: tuple[str, ...]
    relations: tuple[Relation, ...]

    def as_json(self) -> dict[str, Any]:
        """Return what a schema says of the target, as JSON data."""
        return {
            "target": self.column.name,
            "certain": self.certain,
            "likely": list(self.likely),
            "relations": [asdict(one) | {"message": one.message} for one in self.relations],
        }


def guess_target(columns: Sequence[Column], values: Sequence[Sequence[Any]]) -> TargetGuess | None:
    """Guess the target from names, positions, kinds and the ``values``; None if no column can be one.

    The name counts most, then the position: last, as in most data sets, or first. A guess is not certain if
    another column holds the same information: either may be the target.
    """
    names = {column.name.strip().casefold() for column in columns}
    last = len(columns) - 1
    scores = {
        position: _score(position, column, names, last=last)
        for position, column in enumerate(columns)
        if column.kind in ("number", "code", "category") and column.distinct != 1
    }
    if not scores:
        return None
    best = sorted(scores, key=lambda position: (scores[position], position), reverse=True)[:_CANDIDATES]
    relations = _find_relations(columns, values, best[0])
    target = columns[best[0]]
    second = max((scores[position] for position in best[1:]), default=0)
    twins = any(relation.both and target.name in (relation.column, relation.other) for relation in relations)
    certain = scores[best[0]] >= _CLEAR and scores[best[0]] - second >= _MARGIN and not twins
    return TargetGuess(target, certain, tuple(columns[position].name for position in best), relations)


def choose_target(
    columns: Sequence[Column], values: Sequence[Sequence[Any]], name: str, file: str
) -> TargetGuess:
    """Return the column ``name`` as the target; raise ``DataError`` if ``file`` has none of this name."""
    names = [column.name for column in columns]
    if name not in names:
        raise DataError(missing_column(name, names, file, "target", None))
    at = names.index(name)
    return TargetGuess(columns[at], True, (name,), _find_relations(columns, values, at))


def guess_task(column: Column) -> Task:
    """Return the task of a target.

    Text is classification. Integers are classes if there are two, or few that recur often.
    """
    few = column.whole and column.distinct == 2 and column.high is not None
    return "classification" if few or column.kind in ("category", "code") else "regression"


def _score(position: int, column: Column, names: set[str], *, last: int) -> float:
    name = column.name.strip().casefold()
    words = set(re.split(r"[ _.-]+", name))
    score = 0.0
    if name in _TARGETS:
        score = 10
    elif name in _OFTEN and not (name == "y" and "x" in names):
        score = 8
    elif name in _LIKELY or _QUESTION.match(name):
        score = 5
    elif words & (_TARGETS | _OFTEN - {"y"}):
        score = 4
    if position == last:
        score += 3
    elif position == 0:
        score += 1
    if column.kind != "number" and column.distinct <= FEW:
        score += 1
    return score


def _find_relations(
    columns: Sequence[Column], values: Sequence[Sequence[Any]], target: int
) -> tuple[Relation, ...]:
    """Compare all columns with each other, or of a wide table all with the target."""
    fit = [at for at, column in enumerate(columns) if column.distinct > 1 and len(values[at]) >= _FIRST]
    narrow = len(fit) <= _PAIRS
    determined: set[tuple[int, int]] = set()
    for pair in combinations(fit, 2) if narrow else ((at, target) for at in fit if at != target):
        one, other = pair
        if columns[one].kind == columns[other].kind == "number":
            if _linear(values[one], values[other]):
                determined |= {(one, other), (other, one)}
            continue
        for one, other in (pair, pair[::-1]):
            few = columns[other].distinct <= columns[one].distinct <= len(values[one]) / _GROUP
            if few and _determines(values[one], values[other]):
                determined.add((one, other))
    return tuple(
        Relation(columns[one].name, columns[other].name, (other, one) in determined)
        for one, other in sorted(determined)
        if (other, one) not in determined or one < other
    )


def _determines(one: Sequence[Hashable], other: Sequence[Hashable]) -> bool:
    """Return whether each value of ``one`` occurs with one value of ``other``, and not by chance."""
    found: dict[Hashable, Hashable] = {}
    if any(found.setdefault(value, paired) != paired for value, paired in zip(one, other, strict=True)):
        return False
    most = Counter(other).most_common(1)[0][0]
    groups = Counter(one)
    agreeing = sum(
        1 for value, paired in zip(one, other, strict=True) if groups[value] > 1 and paired != most
    )
    return agreeing >= _AGREEING_ROWS


def _linear(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Return whether two columns of numbers differ only by a factor and an offset."""
    first = _correlation(one[:_FIRST], other[:_FIRST])
    return (math.isnan(first) or first >= _LINEAR) and _correlation(one, other) >= _LINEAR


def _correlation(one: Sequence[Any], other: Sequence[Any]) -> float:
    """Return the absolute correlation where both have a value; NaN for too few or equal ones."""
    pairs = ((a, b) for a, b in zip(one, other, strict=True) if not (is_missing(a) or is_missing(b)))
    present = np.array([(number(a), number(b)) for a, b in pairs], np.float64).reshape(-1, 2)
    if len(present) < _AGREEING_ROWS:
        return math.nan
    x, y = (present - present.mean(axis=0)).T
    scale = math.sqrt(float(x @ x) * float(y @ y))
    return abs(float(x @ y)) / scale if scale > 0 else math.nan
