"""One column of the data to one column of the float32 matrix.

A column of numbers is a feature as it is; one of ``true`` and ``false`` becomes 1 and 0. A column of text is

* numbers, if more than half of its values are: then each one that is not is an error,
* a category, if the spec's ``[columns] categorical`` names it, if Parquet calls it one, or if it has few
  distinct values: at most 10, or at most 255 (``DataLimits.found_categories``) that come twice on average,
* an error otherwise: dates, ids and free text tell a tree nothing as they stand.
"""

from __future__ import annotations

import polars as pl

from dmls_core.data.encoder import category_text
from dmls_core.data.findings import Finding
from dmls_core.data.table import TableColumn
from dmls_core.data.texts import Texts, first_row, in_order
from dmls_core.settings import DataLimits

Feature = tuple[TableColumn, pl.Series]
"""A column and its values as Float32, null or NaN where missing."""

EXACT_INTEGERS = 2**24
"""From here on float32 cannot tell neighbouring integers apart."""

_FEW = 10
"""Distinct texts that are categories however few rows there are."""

_LARGEST = "a number between -3.4e38 and 3.4e38"


def read_feature(series: pl.Series, limits: DataLimits, *, categorical: bool) -> Feature | Finding:
    """Turn a column into numbers or codes.

    Args:
        series: ``Float32``, or ``Categorical`` or ``String`` where the column holds text.
        limits: bounds on texts and categories.
        categorical: whether the spec calls it a category.
    """
    if series.dtype.is_numeric():
        return _number(series)
    texts = Texts.of(series)
    if not texts.distinct:
        return _no_values(series.name)
    if texts.longest > limits.cell:
        return _too_long(series, texts, limits)
    if categorical:
        return _category(series, texts, limits.categories)
    if texts.numbers == texts.rows:
        return _number(_replace(series, texts.frame["text"], texts.frame["number"]))
    if 2 * texts.numbers > texts.rows:
        return Finding(
            series.name,
            "is not a number, as most values of this column are",
            row=first_row(series, texts.not_numbers),
            expected="a number, or nothing for a missing value",
            hint="mend or empty these values, or name the column in [columns] categorical",
        )
    if texts.are_truths:
        truths = texts.frame["stripped"].str.to_lowercase() == "true"
        return _number(_replace(series, texts.frame["text"], truths))
    if texts.are_dates:
        return dates(series.name, first_row(series, texts.frame["text"]))
    most = min(limits.found_categories, max(_FEW, texts.rows // 2))
    if texts.distinct > most:
        return Finding(
            series.name,
            "holds text with too many distinct values to be a category without being named as one",
            found=f"{texts.distinct} distinct values in {texts.rows} rows",
            expected=f"at most {most}",
            hint="leave it out with [columns] drop, or name it in [columns] categorical",
        )
    return _category(series, texts, limits.categories)


def merged_integers(exact: pl.Series) -> Finding | None:
    """Find out whether integers lose what tells them apart when they become float32, as large ids do."""
    kept, distinct = exact.cast(pl.Float32).n_unique(), exact.n_unique()
    if 2 * kept > distinct:
        return None
    return Finding(
        exact.name,
        "holds integers too large to be told apart as 32-bit floating point numbers",
        row=int((exact.abs() >= EXACT_INTEGERS).fill_null(value=False).arg_max() or 0),
        expected=f"integers up to {EXACT_INTEGERS:,}",
        hint="leave an id out with [columns] id or drop; otherwise subtract the smallest value",
    )


def dates(name: str, row: int | None = None) -> Finding:
    """Return the finding of a feature that holds dates."""
    return Finding(
        name,
        "holds dates, which are no feature as they stand",
        row=row,
        expected="numbers or categories",
        hint="leave it out with [columns] drop, or put numbers made from it (year, month, age) into columns",
    )


def nested(name: str) -> Finding:
    """Return the finding of a column that holds lists, structures or bytes."""
    return Finding(
        name,
        "holds nested or binary values",
        expected="numbers, text or truth values",
        hint="leave it out with [columns] drop",
    )


def _number(series: pl.Series) -> Feature | Finding:
    values = series.cast(pl.Float32)
    if values.is_null().all() or values.fill_null(float("nan")).is_nan().all():
        return _no_values(series.name)
    infinite = values.is_infinite()
    if infinite.any():
        return Finding(
            series.name,
            "is infinite, or beyond what a 32-bit floating point number holds",
            row=int(infinite.fill_null(value=False).arg_max() or 0),
            expected=_LARGEST,
            hint="mend or empty these values, or scale the column",
        )
    return TableColumn(series.name), values


def _category(series: pl.Series, texts: Texts, most: int) -> Feature | Finding:
    if texts.distinct > most:
        return Finding(
            series.name,
            "has too many categories",
            found=f"{texts.distinct} distinct values in {texts.rows} rows",
            expected=f"at most {most}",
            hint="leave it out with [columns] drop, or put rare values together",
        )
    spelled = {text: category_text(text) for text in texts.frame["text"].to_list()}
    categories = in_order({text for text in spelled.values() if text is not None})
    codes = {text: float(code) for code, text in enumerate(categories)}
    values = pl.Series([codes.get(text or "") for text in spelled.values()], dtype=pl.Float32)
    return TableColumn(series.name, tuple(categories)), _replace(series, pl.Series(list(spelled)), values)


def _replace(series: pl.Series, texts: pl.Series, values: pl.Series) -> pl.Series:
    values = values.cast(pl.Float32)
    return series.replace_strict(texts, values, default=None, return_dtype=pl.Float32)


def _no_values(name: str) -> Finding:
    return Finding(
        name, "has no value in any row", hint="leave the column out with [columns] drop, or fill it"
    )


def _too_long(series: pl.Series, texts: Texts, limits: DataLimits) -> Finding:
    long = texts.frame.filter(pl.col("text").str.len_bytes() > limits.cell)["text"]
    return Finding(
        series.name,
        "holds a text that is too long",
        row=first_row(series, long),
        found=f"{texts.longest:,} bytes",
        expected=f"at most {limits.cell:,} bytes",
        hint="leave the column out with [columns] drop; an unclosed double quote makes such texts, too",
    )
