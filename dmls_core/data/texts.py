"""The distinct texts of a column, and what they are."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from dmls_core.data.encoder import MISSING

_DATE = r"^(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([T ]\d{1,2}:\d{2}.*)?$"


@dataclass(frozen=True, slots=True)
class Texts:
    """The distinct texts of a column.

    Attributes:
        frame: one row for each, with ``text`` as it stands in the data, ``stripped`` of the blanks around
            it, ``count`` (of rows) and ``number`` (null for what is no number). Missing values are left out.
        rows: rows with a value.
    """

    frame: pl.DataFrame
    rows: int

    @classmethod
    def of(cls, series: pl.Series) -> Texts:
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
        """Number of distinct texts, not counting blanks around them."""
        return self.frame["stripped"].n_unique()

    @property
    def longest(self) -> int:
        """Bytes of the longest text."""
        return int(self.frame["text"].str.len_bytes().max() or 0)  # type: ignore[arg-type]

    @property
    def numbers(self) -> int:
        """Rows that hold a number."""
        return int(self.frame.filter(pl.col("number").is_not_null())["count"].sum())

    @property
    def not_numbers(self) -> pl.Series:
        """The texts that are no numbers."""
        return self.frame.filter(pl.col("number").is_null())["text"]

    @property
    def are_truths(self) -> bool:
        """Whether all are ``true`` or ``false``, in any case of letters."""
        return bool(self.frame["stripped"].str.to_lowercase().is_in(["true", "false"]).all())

    @property
    def are_dates(self) -> bool:
        """Whether all look like dates, with or without a time."""
        return bool(self.frame["stripped"].str.contains(_DATE).all())


def first_row(series: pl.Series, texts: pl.Series) -> int:
    """Return the first row of a column that holds one of the texts."""
    return int(series.cast(pl.String).is_in(texts.implode()).fill_null(value=False).arg_max() or 0)


def in_order(texts: Iterable[str]) -> list[str]:
    """Sort texts: as numbers if all are numbers, else by their characters."""
    texts = sorted(texts)
    try:
        numbers = {text: float(text) for text in texts}
    except ValueError:
        return texts
    return sorted(texts, key=numbers.__getitem__) if all(map(math.isfinite, numbers.values())) else texts
