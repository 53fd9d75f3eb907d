"""Guess which column of a sample is to be predicted, and find columns that give it away."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl

from dmls_core.data.encoder import MISSING
from dmls_core.data.leaks import Relation, find_relations, find_total
from dmls_core.data.table.reader import missing_column
from dmls_core.errors import DataError
from dmls_core.intake.schema_inference.draft import FEW, InferredColumn

_TARGETS = {
    *("target", "label", "labels", "outcome", "response", "ground_truth", "truth"),
    *("species", "diagnosis", "survived", "churn", "churned", "fraud", "default"),
}
"""Names of targets and of little else."""

_OFTEN = {"class", "classes", "y"}
"""Names of targets, but also of features: a class of travel, a coordinate."""

_LIKELY = {
    *("price", "quality", "income", "category", "type", "grade", "score", "rating", "status", "demand"),
    *("sales", "revenue", "cost", "amount", "converted", "clicked", "returned", "approved", "defect"),
    *("failed", "failure", "yield", "value", "result"),
}
_QUESTION = re.compile(r"^(?:is|has|was|will|did)_")

_CLEAR = 9
"""Score of a column whose name, or name, position and type, are those of a target."""

_ALL_MISSING = 10
"""What a column without any value would lose of its score; a few missing values are common."""

_MARGIN = 3
"""A guess is certain if no other column comes so close."""

TOTALS = 20
"""Columns of numbers each of which may be a sum of others; of more, only likely targets are looked at."""

_CANDIDATES = 5
"""Number of likely targets to report."""


@dataclass(frozen=True, slots=True)
class TargetGuess:
    """The most likely target.

    Attributes:
        certain: whether its name, or name and position, leave no doubt.
        likely: names of likely targets, most likely first; the guess is the first.
        relations: columns that give away others, such as a second spelling of the target.
        totals: sentences on columns of numbers that are weighted sums of others, by name; see ``find_sum``.
    """

    column: InferredColumn
    certain: bool
    likely: tuple[str, ...]
    relations: tuple[Relation, ...]
    totals: Mapping[str, str]

    def as_json(self) -> dict[str, Any]:
        """Return what a schema says of the target, as JSON data."""
        return {
            "target": self.column.name,
            "certain": self.certain,
            "likely": list(self.likely),
            "relations": [asdict(one) | {"message": one.message} for one in self.relations],
            "totals": dict(self.totals),
        }


def guess_target(
    columns: Sequence[InferredColumn], values: Sequence[Sequence[Any]], not_missing: Collection[str] = ()
) -> TargetGuess | None:
    """Guess the target from names, positions, kinds and the ``values``; None if no column can be one.

    The name counts most, then the share of rows with a value, then the position: last, as in most data sets,
    or first. A guess is not certain if another column holds the same information: either may be the target.
    The texts ``not_missing`` are values.
    """
    names = {column.name.strip().casefold() for column in columns}
    last = len(columns) - 1
    scores = {
        position: _score(position, column, names, last=last)
        - _ALL_MISSING * (column.missing / max(1, len(values[position]))) ** 2
        for position, column in enumerate(columns)
        if column.kind in ("number", "code", "category") and column.distinct != 1
    }
    if not scores:
        return None
    best = sorted(scores, key=lambda position: (scores[position], position), reverse=True)[:_CANDIDATES]
    relations, totals = _leaks(columns, values, best, not_missing)
    target = columns[best[0]]
    second = max((scores[position] for position in best[1:]), default=0)
    pairs = {(one.column, one.other) for one in relations}
    twins = any(
        target.name in (one.column, one.other) and (one.both or (one.other, one.column) in pairs)
        for one in relations
    )
    certain = scores[best[0]] >= _CLEAR and scores[best[0]] - second >= _MARGIN and not twins
    likely = tuple(columns[position].name for position in best)
    return TargetGuess(target, certain, likely, relations, totals)


def choose_target(
    columns: Sequence[InferredColumn],
    values: Sequence[Sequence[Any]],
    name: str,
    file: str,
    not_missing: Collection[str] = (),
) -> TargetGuess:
    """Return the column ``name`` as the target; raise ``DataError`` if ``file`` has none of this name."""
    names = [column.name for column in columns]
    if name not in names:
        raise DataError(missing_column(name, names, file, "target", None))
    at = names.index(name)
    return TargetGuess(columns[at], True, (name,), *_leaks(columns, values, [at], not_missing))


def _score(position: int, column: InferredColumn, names: set[str], *, last: int) -> float:
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


def _leaks(
    columns: Sequence[InferredColumn],
    values: Sequence[Sequence[Any]],
    targets: Sequence[int],
    not_missing: Collection[str],
) -> tuple[tuple[Relation, ...], dict[str, str]]:
    """Return which columns of the sample give others away, and which are weighted sums of others.

    Of a wide table, only the ``targets`` are looked at.
    """
    fit = [at for at, column in enumerate(columns) if column.distinct > 1 and values[at]]
    texts = [number for number, at in enumerate(fit) if columns[at].low is None]
    frame = pl.DataFrame(
        [pl.Series(str(number), values[at], pl.String, strict=False) for number, at in enumerate(fit)]
    )
    is_text = frozenset(texts)
    missing = MISSING.difference(not_missing)
    cells = [
        _codes(pl.col(name), missing) if number in is_text else _numbers(pl.col(name))
        for number, name in enumerate(frame.columns)
    ]
    names = [columns[at].name for at in fit]
    matrix = frame.select(cells).to_numpy()
    chosen = [fit.index(at) for at in targets if at in fit]
    relations = find_relations(names, matrix, texts, chosen)
    numbers = [number for number, at in enumerate(fit) if columns[at].low is not None]
    features = [number for number in numbers if not columns[fit[number]].reason]
    targets = numbers if len(numbers) <= TOTALS else [at for at in chosen if at in numbers]
    wide = matrix.astype(np.float64)
    totals = {names[at]: find_total(names, wide, features, relations, at) for at in targets}
    return relations, {name: message for name, message in totals.items() if message}


def _numbers(column: pl.Expr) -> pl.Expr:
    return column.str.strip_chars().cast(pl.Float64, strict=False).cast(pl.Float32)


def _codes(column: pl.Expr, missing: Collection[str]) -> pl.Expr:
    stripped = column.str.strip_chars()
    present = pl.when(~stripped.is_in(list(missing))).then(stripped)
    return present.cast(pl.Categorical).to_physical().cast(pl.Float32)
