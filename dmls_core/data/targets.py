"""Convert the column to predict to class indices or numbers.

The classes are sorted, as numbers if all are numbers, and spelled as in the data. If the data spells one
class in several ways (``1`` and ``1.0``, ``True`` and ``true``), its label is that of ``category_text``.
"""

from __future__ import annotations

import polars as pl

from dmls_core.data.categoricals import DistinctTexts, first_row, sort_texts
from dmls_core.data.encoder import category_text
from dmls_core.data.sources import ColumnIssue
from dmls_core.settings import DataLimits
from dmls_core.spec.definitions import Task

TargetColumn = tuple[pl.Series, tuple[str, ...] | None]
"""Class indices (Int64) and labels, or values (Float64) and None; null for a row without a target."""


def read_target(series: pl.Series, task: Task, limits: DataLimits) -> TargetColumn | ColumnIssue:
    """Convert a ``Float64``, ``Categorical`` or ``String`` column to class indices or numbers."""
    return _classes(series, limits) if task == "classification" else _numbers(series)


def _classes(series: pl.Series, limits: DataLimits) -> TargetColumn | ColumnIssue:
    texts = DistinctTexts.of(series)
    if not texts.distinct:
        return _no_values(series.name)
    if texts.distinct > limits.classes:
        return ColumnIssue(
            series.name,
            "has too many classes to be the target of a classifier",
            found=f"{texts.distinct} distinct values in {texts.rows} rows",
            expected=f"at most {limits.classes}",
            hint="if it is a number, use a regressor",
        )
    spellings: dict[str, set[str]] = {}
    rule = {text: category_text(text) or "" for text in texts.frame["text"].to_list()}
    for text, shared in rule.items():
        spellings.setdefault(shared, set()).add(text.strip())
    names = {shared: next(iter(some)) if len(some) == 1 else shared for shared, some in spellings.items()}
    labels = sort_texts(names.values())
    if len(labels) < 2:
        return ColumnIssue(
            series.name,
            "has the same class in every row, so there is nothing to learn",
            found=labels[0],
            expected="at least 2 classes",
            hint="choose another target, or add rows of other classes",
        )
    index = {label: position for position, label in enumerate(labels)}
    codes = series.replace_strict(
        pl.Series(list(rule)),
        pl.Series([index[names[shared]] for shared in rule.values()], dtype=pl.Int64),
        default=None,
        return_dtype=pl.Int64,
    )
    return codes, tuple(labels)


def _numbers(series: pl.Series) -> TargetColumn | ColumnIssue:
    if not series.dtype.is_numeric():
        texts = DistinctTexts.of(series)
        if not texts.distinct:
            return _no_values(series.name)
        if texts.numbers < texts.rows:
            return ColumnIssue(
                series.name,
                "is not a number, so it cannot be the target of a regressor",
                row=first_row(series, texts.not_numbers),
                expected="a number, or nothing for a row without a target",
                hint="correct these values; to predict classes, use a classifier",
            )
        series = series.replace_strict(
            texts.frame["text"], texts.frame["number"], default=None, return_dtype=pl.Float64
        )
    values = series.cast(pl.Float64).fill_nan(None)
    if not values.count():
        return _no_values(series.name)
    # Engines compute in single precision.
    infinite = values.cast(pl.Float32).is_infinite().fill_null(value=False)
    if infinite.any():
        return ColumnIssue(
            series.name,
            "is infinite, or beyond the range of a 32-bit floating point number",
            row=int(infinite.arg_max() or 0),
            expected="a number between -3.4e38 and 3.4e38",
            hint="correct or empty these values, or scale the column",
        )
    if values.min() == values.max():
        return ColumnIssue(
            series.name,
            "has the same value in every row, so there is nothing to learn",
            found=str(values.max()),
            expected="at least 2 different values",
            hint="choose another target",
        )
    return values, None


def _no_values(name: str) -> ColumnIssue:
    return ColumnIssue(name, "has no value in any row", expected="a target", hint="choose another target")
