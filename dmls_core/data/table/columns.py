"""Convert columns of the data: features to float32, the target to class indices or numbers.

A column of numbers is a feature as it is; ``true`` and ``false`` become 1 and 0. A column of text is

* numbers, if more than half of its values are: then every other value is an error,
* a category, if ``[columns] categorical`` names it, if its Parquet type is categorical, or if it has few
  distinct values: at most 10, or at most 255 (``DataLimits.found_categories``) and at most one per two rows,
* an error otherwise: a tree cannot use ids and free text, and ``[columns] dates`` names dates.

The classes of a target are sorted, as numbers if all are numbers, and spelled as in the data. If the data
spells one class in several ways (``1`` and ``1.0``, ``True`` and ``true``), its label is that of
``category_text``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import cast

import polars as pl

from dmls_core.data.encoder import MISSING, category_text
from dmls_core.data.formats.data_files import EXCLUDE, ColumnIssue
from dmls_core.data.formats.missing_marks import hint_on
from dmls_core.data.table.table import TableColumn
from dmls_core.settings import DataLimits
from dmls_core.spec.definitions import Task

PADDED = r"^[+-]?0\d+$"
"""Digits with leading zeros, as in postal codes: a number lacks them."""

_DATE = r"^(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([T ]\d{1,2}:\d{2}.*)?$"

_WRITTEN = (
    r"(?i)^(\d{1,2}[-. ]{1,2}[a-z]{3,9}[-., ]{1,2}(\d{4}|\d{2})|[a-z]{3,9}\.? \d{1,2},? \d{4})"
    r"([T ]\d{1,2}:\d{2}.*)?$|^\d{1,2}:\d{2}(:\d{2}.*)?( ?[ap]m)?$"
)
"""Dates with the name of a month, and times of the day: few distinct ones are categories."""

_NESTED = r"^(\[.*\]|\{.*\})$"
"""JSON lists and objects."""

_QUANTITY = r"^[-+(]?(\p{Sc} ?|[A-Z]{3} )?[-+]?\d[\d.,' ]*( ?(\p{Sc}|%|[A-Za-z]{1,4}))?\)?$"


@dataclass(frozen=True, slots=True)
class DistinctTexts:
    """The distinct texts of a column, without missing values; ``rows`` counts the rows with a value.

    ``frame`` has one row per text: ``text`` as in the data, ``stripped`` of surrounding blanks, ``count`` of
    rows, and ``number`` (null if it is not a number).
    """

    frame: pl.DataFrame
    rows: int

    @classmethod
    def of(cls, series: pl.Series, not_missing: Collection[str] = ()) -> DistinctTexts:
        """Count the texts of a ``String`` or ``Categorical`` column; those ``not_missing`` are values."""
        counted = series.alias("text").value_counts(name="count").drop_nulls("text")
        frame = (
            counted.with_columns(text=pl.col("text").cast(pl.String))
            .with_columns(stripped=pl.col("text").str.strip_chars())
            .filter(~pl.col("stripped").is_in(list(MISSING.difference(not_missing))))
            .with_columns(number=pl.col("stripped").cast(pl.Float64, strict=False))
        )
        return cls(frame, int(frame["count"].sum()))

    @staticmethod
    def missing(series: pl.Series, not_missing: Collection[str]) -> dict[str, int]:
        """Count the texts of a column that are read as missing values; none of a column of numbers."""
        if series.dtype.is_numeric():
            return {}
        counted = series.alias("text").value_counts(name="count").drop_nulls("text")
        texts = counted.select(pl.col("text").cast(pl.String).str.strip_chars(), "count")
        missing = texts.filter(pl.col("text").is_in(list(MISSING.difference(not_missing, {""}))))
        return dict(missing.group_by("text").sum().sort("count", "text", descending=True).rows())

    @property
    def distinct(self) -> int:
        """Return the number of distinct texts, ignoring surrounding blanks."""
        return self.frame["stripped"].n_unique()

    @property
    def longest(self) -> int:
        """Return the size of the longest text in bytes."""
        return int(self.frame["text"].str.len_bytes().max() or 0)  # type: ignore[arg-type]

    @property
    def numbers(self) -> int:
        """Return the number of rows that contain a number."""
        return int(self.frame.filter(pl.col("number").is_not_null())["count"].sum())

    @property
    def not_numbers(self) -> pl.Series:
        """Return the texts that are not numbers."""
        return self.frame.filter(pl.col("number").is_null())["text"]

    @property
    def are_booleans(self) -> bool:
        """Return whether all texts are ``true`` or ``false``, ignoring case."""
        return bool(self.frame["stripped"].str.to_lowercase().is_in(["true", "false"]).all())

    @property
    def are_dates(self) -> bool:
        """Return whether all texts look like dates, with or without a time."""
        return bool(self.frame["stripped"].str.contains(_DATE).all())

    @property
    def are_written_dates(self) -> bool:
        """Return whether all texts look like dates with the name of a month, or like times of the day."""
        return bool(self.frame["stripped"].str.contains(_WRITTEN).all())

    @property
    def are_nested(self) -> bool:
        """Return whether all texts look like JSON lists or objects."""
        return bool(self.frame["stripped"].str.contains(_NESTED).all())

    @property
    def are_quantities(self) -> bool:
        """Return whether all texts are numbers with a currency or a unit."""
        return bool(self.frame["stripped"].str.contains(_QUANTITY).all())


def first_row(series: pl.Series, texts: pl.Series) -> int:
    """Return the first row of a column that contains one of the texts."""
    return int(series.cast(pl.String).is_in(texts.implode()).fill_null(value=False).arg_max() or 0)


def _sort_texts(texts: Iterable[str]) -> list[str]:
    """Sort texts as numbers if all are numbers, else by their characters."""
    texts = sorted(texts)
    try:
        numbers = {text: float(text) for text in texts}
    except ValueError:
        return texts
    return sorted(texts, key=numbers.__getitem__) if all(map(math.isfinite, numbers.values())) else texts


Feature = tuple[TableColumn, pl.Series]
"""A column and its values as Float32; null or NaN if missing."""

EXACT_INTEGERS = 2**24
"""float32 holds every integer up to here exactly."""

_FEW = 10
"""A column with at most this many distinct texts is categorical, however few rows it has."""

_LARGEST = "a number between -3.4e38 and 3.4e38"


def read_feature(
    series: pl.Series, limits: DataLimits, *, categorical: bool, not_missing: Collection[str] = ()
) -> Feature | ColumnIssue:
    """Convert a ``Float32``, ``Categorical`` or ``String`` column to numbers or category codes.

    The texts ``not_missing`` are categories; among numbers, they are missing.
    """
    if series.dtype.is_numeric():
        return _number(series)
    texts = DistinctTexts.of(series)
    values = DistinctTexts.of(series, not_missing) if not_missing else texts
    if not values.distinct:
        return no_values(series.name)
    if values.longest > limits.cell:
        return _too_long(series, values, limits)
    if categorical or not texts.distinct:
        return _category(series, values, limits.categories, not_missing)
    if texts.numbers == texts.rows:
        return _number(replace_texts(series, texts.frame["text"], texts.frame["number"]))
    if 2 * texts.numbers > texts.rows:
        return ColumnIssue(
            series.name,
            "is not a number, as most values of this column are",
            row=first_row(series, texts.not_numbers),
            expected="a number, or nothing for a missing value",
            hint=hint_on(texts.not_numbers.to_list())
            or "correct or empty these values, or name the column in [columns] categorical",
        )
    if values.are_booleans:
        booleans = texts.frame["stripped"].str.to_lowercase() == "true"
        return _number(replace_texts(series, texts.frame["text"], booleans))
    if texts.are_dates:
        return date_issue(series.name, first_row(series, texts.frame["text"]))
    most = most_categories(values.rows, limits)
    if values.distinct > most:
        return _too_many_texts(series, values, most, limits)
    return _category(series, values, limits.categories, not_missing)


def most_categories(rows: int, limits: DataLimits) -> int:
    """Return up to how many distinct texts a column with ``rows`` of them is a category by default."""
    return min(limits.found_categories, max(_FEW, rows // 2))


def _too_many_texts(series: pl.Series, texts: DistinctTexts, most: int, limits: DataLimits) -> ColumnIssue:
    row = first_row(series, texts.frame["text"])
    if texts.are_written_dates:
        return date_issue(series.name, row)
    return ColumnIssue(
        series.name,
        "contains text with too many distinct values to be a category by default",
        row=row,
        found=f"{series[row][:80]!r}, and {texts.distinct} distinct values in {texts.rows} rows",
        expected=f"at most {most}",
        hint=f"remove the currency or unit from the numbers, or {EXCLUDE}"
        if texts.are_quantities
        else f"these are JSON lists or objects: write their values into columns of their own, or {EXCLUDE}"
        if texts.are_nested
        else f"{EXCLUDE}, or name it in [columns] categorical",
        refutable=texts.distinct <= limits.found_categories,
    )


def find_merged_integers(exact: pl.Series) -> ColumnIssue | None:
    """Return an issue if more than half of the distinct integers coincide as float32, as large ids do."""
    float32_distinct, distinct = exact.cast(pl.Float32).n_unique(), exact.n_unique()
    if 2 * float32_distinct > distinct:
        return None
    return ColumnIssue(
        exact.name,
        "contains integers too large to be distinct as 32-bit floating point numbers",
        row=int((exact.abs() >= EXACT_INTEGERS).fill_null(value=False).arg_max() or 0),
        expected=f"integers up to {EXACT_INTEGERS:,}",
        hint=f"{EXCLUDE} if it is an id; otherwise subtract the smallest value",
        refutable=True,
    )


def date_issue(name: str, row: int | None = None) -> ColumnIssue:
    """Return the issue of a feature that contains dates."""
    return ColumnIssue(
        name,
        "contains dates",
        row=row,
        expected="numbers or categories, or a column that [columns] dates names",
        hint=f"name it in [columns] dates, or {EXCLUDE}",
    )


def nested_issue(name: str) -> ColumnIssue:
    """Return the issue of a column that contains lists, structures or bytes."""
    return ColumnIssue(
        name,
        "contains nested, binary or duration values",
        expected="numbers, text or booleans",
        hint=EXCLUDE,
    )


def _number(series: pl.Series) -> Feature | ColumnIssue:
    values = series.cast(pl.Float32)
    # Both ignore null and NaN, and are many times cheaper than expressions: a table may have 10,000 columns.
    low, high = (cast("float | None", bound) for bound in (values.min(), values.max()))
    if low is None or high is None or math.isnan(low):
        return no_values(series.name)
    if math.isfinite(low) and math.isfinite(high):
        return TableColumn(series.name), values
    return ColumnIssue(
        series.name,
        "is infinite, or beyond the range of a 32-bit floating point number",
        row=int(values.is_infinite().fill_null(value=False).arg_max() or 0),
        expected=_LARGEST,
        hint="correct or empty these values, or scale the column",
    )


def _category(
    series: pl.Series, texts: DistinctTexts, most: int, not_missing: Collection[str]
) -> Feature | ColumnIssue:
    if texts.distinct > most:
        return ColumnIssue(
            series.name,
            "has too many categories",
            found=f"{texts.distinct} distinct values in {texts.rows} rows",
            expected=f"at most {most}",
            hint=f"{EXCLUDE}, or merge rare values",
        )
    spelled = {text: category_text(text, not_missing) for text in texts.frame["text"].to_list()}
    categories = _sort_texts({text for text in spelled.values() if text is not None})
    codes = {text: float(code) for code, text in enumerate(categories)}
    values = pl.Series([codes.get(text or "") for text in spelled.values()], dtype=pl.Float32)
    return TableColumn(series.name, tuple(categories)), replace_texts(
        series, pl.Series(list(spelled)), values
    )


def replace_texts(series: pl.Series, texts: pl.Series, values: pl.Series) -> pl.Series:
    """Return the value of each text of a column as Float32; null for other texts."""
    values = values.cast(pl.Float32)
    return series.replace_strict(texts, values, default=None, return_dtype=pl.Float32)


def no_values(name: str) -> ColumnIssue:
    """Return the issue of a feature without any value."""
    return ColumnIssue(
        name,
        "has no value in any row",
        hint=f"{EXCLUDE}, or fill it",
        refutable=True,
    )


def _too_long(series: pl.Series, texts: DistinctTexts, limits: DataLimits) -> ColumnIssue:
    long = texts.frame.filter(pl.col("text").str.len_bytes() > limits.cell)["text"]
    return ColumnIssue(
        series.name,
        "contains a text that is too long",
        row=first_row(series, long),
        found=f"{texts.longest:,} bytes",
        expected=f"at most {limits.cell:,} bytes",
        hint=f"{EXCLUDE}, or close an open double quote",
    )


TargetColumn = tuple[pl.Series, tuple[str, ...] | None]
"""Class indices (Int64) and labels, or values (Float64) and None; null for a row without a target."""


def read_target(
    series: pl.Series, task: Task, limits: DataLimits, not_missing: Collection[str] = ()
) -> TargetColumn | ColumnIssue:
    """Convert a ``Float64``, ``Categorical`` or ``String`` column to class indices or numbers.

    The texts ``not_missing`` are classes.
    """
    if task == "classification":
        return _target_classes(series, limits, not_missing)
    return _target_numbers(series)


def _target_classes(
    series: pl.Series, limits: DataLimits, not_missing: Collection[str]
) -> TargetColumn | ColumnIssue:
    texts = DistinctTexts.of(series, not_missing)
    if not texts.distinct:
        return _no_target(series.name)
    if texts.distinct > limits.classes:
        return ColumnIssue(
            series.name,
            "has too many classes to be the target of a classifier",
            found=f"{texts.distinct} distinct values in {texts.rows} rows",
            expected=f"at most {limits.classes}",
            hint="if it is a number, use a regressor",
        )
    spellings: dict[str, set[str]] = {}
    rule = {text: category_text(text, not_missing) or "" for text in texts.frame["text"].to_list()}
    for text, shared in rule.items():
        spellings.setdefault(shared, set()).add(text.strip())
    names = {shared: next(iter(some)) if len(some) == 1 else shared for shared, some in spellings.items()}
    labels = _sort_texts(names.values())
    if len(labels) < 2:
        return ColumnIssue(
            series.name,
            "has the same class in every row, so there is nothing to learn",
            found=labels[0],
            expected="at least 2 classes",
            hint="choose another target, or add rows of other classes",
            refutable=True,
        )
    index = {label: position for position, label in enumerate(labels)}
    codes = series.replace_strict(
        pl.Series(list(rule)),
        pl.Series([index[names[shared]] for shared in rule.values()], dtype=pl.Int64),
        default=None,
        return_dtype=pl.Int64,
    )
    return codes, tuple(labels)


def _target_numbers(series: pl.Series) -> TargetColumn | ColumnIssue:
    if not series.dtype.is_numeric():
        texts = DistinctTexts.of(series)
        if not texts.distinct:
            return _no_target(series.name)
        if texts.numbers < texts.rows:
            return ColumnIssue(
                series.name,
                "is not a number, so it cannot be the target of a regressor",
                row=first_row(series, texts.not_numbers),
                expected="a number, or nothing for a row without a target",
                hint=hint_on(texts.not_numbers.to_list())
                or "correct these values; to predict classes, use a classifier",
            )
        series = series.replace_strict(
            texts.frame["text"], texts.frame["number"], default=None, return_dtype=pl.Float64
        )
    values = series.cast(pl.Float64).fill_nan(None)
    if not values.count():
        return _no_target(series.name)
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
            refutable=True,
        )
    return values, None


def _no_target(name: str) -> ColumnIssue:
    hint = "choose another target"
    return ColumnIssue(name, "has no value in any row", expected="a target", hint=hint, refutable=True)
