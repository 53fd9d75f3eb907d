"""The column to predict: classes to indices, or numbers.

The classes are sorted, as numbers if all are numbers, and spelled as in the data; where the data spells one
class in several ways (``1`` and ``1.0``, ``True`` and ``true``) the shortest rule of ``category_text`` wins.
"""

from __future__ import annotations

import polars as pl

from dmls_core.data.encoder import category_text
from dmls_core.data.findings import Finding
from dmls_core.data.texts import Texts, first_row, in_order
from dmls_core.settings import DataLimits
from dmls_core.spec.definitions import Task

TargetColumn = tuple[pl.Series, tuple[str, ...] | None]
"""Class indices (Int64) and labels, or values (Float64) and None; null where there is no target."""


def read_target(series: pl.Series, task: Task, limits: DataLimits) -> TargetColumn | Finding:
    """Turn the target column into class indices or numbers.

    Args:
        series: ``Float64``, or ``Categorical`` or ``String`` where the column holds text.
        task: what the model predicts.
        limits: bound on classes.
    """
    return _classes(series, limits) if task == "classification" else _numbers(series)


def _classes(series: pl.Series, limits: DataLimits) -> TargetColumn | Finding:
    texts = Texts.of(series)
    if not texts.distinct:
        return _no_values(series.name)
    if texts.distinct > limits.classes:
        return Finding(
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
    labels = in_order(names.values())
    if len(labels) < 2:
        return Finding(
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


def _numbers(series: pl.Series) -> TargetColumn | Finding:
    if not series.dtype.is_numeric():
        texts = Texts.of(series)
        if not texts.distinct:
            return _no_values(series.name)
        if texts.numbers < texts.rows:
            return Finding(
                series.name,
                "is not a number, so it cannot be the target of a regressor",
                row=first_row(series, texts.not_numbers),
                expected="a number, or nothing for a row without a target",
                hint="mend these values; to predict classes, use a classifier",
            )
        series = series.replace_strict(
            texts.frame["text"], texts.frame["number"], default=None, return_dtype=pl.Float64
        )
    values = series.cast(pl.Float64).fill_nan(None)
    if not values.count():
        return _no_values(series.name)
    # Engines compute in single precision somewhere or other.
    infinite = values.cast(pl.Float32).is_infinite().fill_null(value=False)
    if infinite.any():
        return Finding(
            series.name,
            "is infinite, or beyond what a 32-bit floating point number holds",
            row=int(infinite.arg_max() or 0),
            expected="a number between -3.4e38 and 3.4e38",
            hint="mend or empty these values, or scale the column",
        )
    if values.min() == values.max():
        return Finding(
            series.name,
            "has the same value in every row, so there is nothing to learn",
            found=str(values.max()),
            expected="at least 2 different values",
            hint="choose another target",
        )
    return values, None


def _no_values(name: str) -> Finding:
    return Finding(name, "has no value in any row", expected="a target", hint="choose another target")
