"""Count the distinct texts of a column and classify them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from dmls_core.data.encoder import MISSING

_DATE = r"^(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([T ]\d{1,2}:\d{2}.*)?$"


@dataclass(frozen=True, slots=True)
class DistinctTexts:
    """The distinct texts of a column, without missing values; ``rows`` counts the rows with a value.

    ``frame`` has one row per text: ``text`` as in the data, ``stripped`` of surrounding blanks, ``count`` of
    rows, and ``number`` (null if it is not a number).
    """

    frame: pl.DataFrame
    rows: int

    @classmethod
    def of(cls, series: pl.Series) -> DistinctTexts:
        """Count the texts of a ``String`` or ``Categorical`` column."""
        counted = series.alias("text").value_counts(name="count").drop_nulls("text")
        frame = (
            counted.with_columns(text=pl.col("text").cast(pl.String))
            .with_columns(stripped=pl.col("text").str.strip_chars())
            .filter(~pl.col("stripped").is_in(list(MISSING)))
            .with_columns(number=pl.col("stripped").cast(pl.Float64, strict=False))
        )
        return cls(frame, int(frame["count"].sum()))

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


def first_row(series: pl.Series, texts: pl.Series) -> int:
    """Return the first row of a column that contains one of the texts."""
    return int(series.cast(pl.String).is_in(texts.implode()).fill_null(value=False).arg_max() or 0)


def sort_texts(texts: Iterable[str]) -> list[str]:
    """Sort texts as numbers if all are numbers, else by their characters."""
    texts = sorted(texts)
    try:
        numbers = {text: float(text) for text in texts}
    except ValueError:
        return texts
    return sorted(texts, key=numbers.__getitem__) if all(map(math.isfinite, numbers.values())) else texts
