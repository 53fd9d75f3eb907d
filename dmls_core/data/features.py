"""Convert a column of the data to a column of the float32 matrix.

A column of numbers is a feature as it is; ``true`` and ``false`` become 1 and 0. A column of text is

* numbers, if more than half of its values are: then every other value is an error,
* a category, if ``[columns] categorical`` names it, if its Parquet type is categorical, or if it has few
  distinct values: at most 10, or at most 255 (``DataLimits.found_categories``) and at most one per two rows,
* an error otherwise: a tree cannot use dates, ids and free text.
"""

from __future__ import annotations

import polars as pl

from dmls_core.data.categoricals import DistinctTexts, first_row, sort_texts
from dmls_core.data.encoder import category_text
from dmls_core.data.sources import ColumnIssue
from dmls_core.data.table import TableColumn
from dmls_core.settings import DataLimits

Feature = tuple[TableColumn, pl.Series]
"""A column and its values as Float32; null or NaN if missing."""

EXACT_INTEGERS = 2**24
"""float32 holds every integer up to here exactly."""

_FEW = 10
"""A column with at most this many distinct texts is categorical, however few rows it has."""

_LARGEST = "a number between -3.4e38 and 3.4e38"


def read_feature(series: pl.Series, limits: DataLimits, *, categorical: bool) -> Feature | ColumnIssue:
    """Convert a ``Float32``, ``Categorical`` or ``String`` column to numbers or category codes."""
    if series.dtype.is_numeric():
        return _number(series)
    texts = DistinctTexts.of(series)
    if not texts.distinct:
        return _no_values(series.name)
    if texts.longest > limits.cell:
        return _too_long(series, texts, limits)
    if categorical:
        return _category(series, texts, limits.categories)
    if texts.numbers == texts.rows:
        return _number(_replace(series, texts.frame["text"], texts.frame["number"]))
    if 2 * texts.numbers > texts.rows:
        return ColumnIssue(
            series.name,
            "is not a number, as most values of this column are",
            row=first_row(series, texts.not_numbers),
            expected="a number, or nothing for a missing value",
            hint="correct or empty these values, or name the column in [columns] categorical",
        )
    if texts.are_booleans:
        booleans = texts.frame["stripped"].str.to_lowercase() == "true"
        return _number(_replace(series, texts.frame["text"], booleans))
    if texts.are_dates:
        return date_issue(series.name, first_row(series, texts.frame["text"]))
    most = min(limits.found_categories, max(_FEW, texts.rows // 2))
    if texts.distinct > most:
        return ColumnIssue(
            series.name,
            "contains text with too many distinct values to be a category by default",
            found=f"{texts.distinct} distinct values in {texts.rows} rows",
            expected=f"at most {most}",
            hint="exclude it with [columns] drop, or name it in [columns] categorical",
        )
    return _category(series, texts, limits.categories)


def find_merged_integers(exact: pl.Series) -> ColumnIssue | None:
    """Return an issue if more than half of the distinct integers coincide as float32, as large ids do."""
    kept, distinct = exact.cast(pl.Float32).n_unique(), exact.n_unique()
    if 2 * kept > distinct:
        return None
    return ColumnIssue(
        exact.name,
        "contains integers too large to be distinct as 32-bit floating point numbers",
        row=int((exact.abs() >= EXACT_INTEGERS).fill_null(value=False).arg_max() or 0),
        expected=f"integers up to {EXACT_INTEGERS:,}",
        hint="exclude an id with [columns] id or drop; otherwise subtract the smallest value",
    )


def date_issue(name: str, row: int | None = None) -> ColumnIssue:
    """Return the issue of a feature that contains dates."""
    return ColumnIssue(
        name,
        "contains dates, which cannot be a feature",
        row=row,
        expected="numbers or categories",
        hint="exclude it with [columns] drop, or add columns of numbers such as year, month or age",
    )


def nested_issue(name: str) -> ColumnIssue:
    """Return the issue of a column that contains lists, structures or bytes."""
    return ColumnIssue(
        name,
        "contains nested, binary or duration values",
        expected="numbers, text or booleans",
        hint="exclude it with [columns] drop",
    )


def _number(series: pl.Series) -> Feature | ColumnIssue:
    values = series.cast(pl.Float32)
    if values.is_null().all() or values.fill_null(float("nan")).is_nan().all():
        return _no_values(series.name)
    infinite = values.is_infinite()
    if infinite.any():
        return ColumnIssue(
            series.name,
            "is infinite, or beyond the range of a 32-bit floating point number",
            row=int(infinite.fill_null(value=False).arg_max() or 0),
            expected=_LARGEST,
            hint="correct or empty these values, or scale the column",
        )
    return TableColumn(series.name), values


def _category(series: pl.Series, texts: DistinctTexts, most: int) -> Feature | ColumnIssue:
    if texts.distinct > most:
        return ColumnIssue(
            series.name,
            "has too many categories",
            found=f"{texts.distinct} distinct values in {texts.rows} rows",
            expected=f"at most {most}",
            hint="exclude it with [columns] drop, or merge rare values",
        )
    spelled = {text: category_text(text) for text in texts.frame["text"].to_list()}
    categories = sort_texts({text for text in spelled.values() if text is not None})
    codes = {text: float(code) for code, text in enumerate(categories)}
    values = pl.Series([codes.get(text or "") for text in spelled.values()], dtype=pl.Float32)
    return TableColumn(series.name, tuple(categories)), _replace(series, pl.Series(list(spelled)), values)


def _replace(series: pl.Series, texts: pl.Series, values: pl.Series) -> pl.Series:
    values = values.cast(pl.Float32)
    return series.replace_strict(texts, values, default=None, return_dtype=pl.Float32)


def _no_values(name: str) -> ColumnIssue:
    return ColumnIssue(
        name, "has no value in any row", hint="exclude the column with [columns] drop, or fill it"
    )


def _too_long(series: pl.Series, texts: DistinctTexts, limits: DataLimits) -> ColumnIssue:
    long = texts.frame.filter(pl.col("text").str.len_bytes() > limits.cell)["text"]
    return ColumnIssue(
        series.name,
        "contains a text that is too long",
        row=first_row(series, long),
        found=f"{texts.longest:,} bytes",
        expected=f"at most {limits.cell:,} bytes",
        hint="exclude the column with [columns] drop, or close an open double quote",
    )
