"""Convert a column of dates to the parts that a model gets, by the rule of ``DateFeature``."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import polars as pl

from dmls_core.data.columns import DistinctTexts, Feature, first_row, no_values, replace_texts
from dmls_core.data.encoder import DateFeature, DateOrder, moment
from dmls_core.data.sources import ColumnIssue
from dmls_core.data.table import TableColumn

ORDERS: tuple[DateOrder, ...] = ("year-first", "day-first", "month-first")


def read_date(series: pl.Series, order: DateOrder, used: Collection[str]) -> list[Feature] | ColumnIssue:
    """Convert a ``Categorical`` or ``String`` column of dates to its parts.

    ``used`` are the columns of the table, whose names a part cannot have.
    """
    texts = DistinctTexts.of(series).frame["text"]
    if texts.is_empty():
        return no_values(series.name)
    if wrong := [text for text in texts.to_list() if not is_date(text, order)]:
        return _not_a_date(series, texts, wrong, order)
    date = DateFeature(series.name, order, times=True)
    parts = date.encode(texts.to_list())
    if not parts[:, -1].any():
        date = replace(date, times=False)
    if clash := [name for name in date.columns if name in used]:
        message, hint = "has a part with the name of another column", "rename one of the two columns"
        return ColumnIssue(series.name, message, found=clash[0], hint=hint)
    column = TableColumn(series.name, date=date)
    return [
        (column, replace_texts(series, texts, pl.Series(part)).alias(name))
        for name, part in zip(date.columns, parts.T.copy(), strict=False)
    ]


def is_date(text: str, order: DateOrder) -> bool:
    """Return whether a text is a date in the given order."""
    try:
        return moment(text, order) is not None
    except ValueError:
        return False


def fitting_order(texts: Collection[str]) -> DateOrder | None:
    """Return the first order in which all texts are dates; None if there is none."""
    fitting = (order for order in ORDERS if all(is_date(text, order) for text in texts))
    return next(fitting, None)


def _not_a_date(series: pl.Series, texts: pl.Series, wrong: list[str], order: DateOrder) -> ColumnIssue:
    other = fitting_order(texts.to_list())
    return ColumnIssue(
        series.name,
        f"is not a {order} date",
        row=first_row(series, pl.Series(wrong)),
        expected="a date such as 2026-01-31 or 2026-01-31 14:05, or nothing if it is missing",
        hint=f'set [columns] date_order = "{other}"' if other else "correct or empty these values",
    )
