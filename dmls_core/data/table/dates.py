"""Convert a column of dates to the parts that a model gets, by the rule of ``DateFeature``."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import polars as pl

from dmls_core.data.encoder import DateFeature
from dmls_core.data.formats.data_files import ColumnIssue
from dmls_core.data.formats.missing_marks import hint_on
from dmls_core.data.moments import DateOrder
from dmls_core.data.table.columns import DistinctTexts, Feature, first_row, no_values, replace_texts
from dmls_core.data.table.table import TableColumn

ORDERS: tuple[DateOrder, ...] = ("year-first", "day-first", "month-first")


def read_date(series: pl.Series, order: DateOrder, used: Collection[str]) -> list[Feature] | ColumnIssue:
    """Convert a ``Categorical`` or ``String`` column of dates to its parts.

    ``used`` are the columns of the table, whose names a part cannot have.
    """
    texts = DistinctTexts.of(series).frame["text"]
    if texts.is_empty():
        return no_values(series.name)
    date = _fitting_feature(series.name, texts.to_list(), order)
    if date is None:
        return _not_a_date(series, texts, order)
    if date.days and not date.encode(texts.to_list())[:, -1].any():
        date = replace(date, times=False)
    if clash := [name for name in date.columns if name in used]:
        message, hint = "has a part with the name of another column", "rename one of the two columns"
        return ColumnIssue(series.name, message, found=clash[0], hint=hint)
    column, parts = TableColumn(series.name, date=date), date.encode(texts.to_list())
    return [
        (column, replace_texts(series, texts, pl.Series(part)).alias(name))
        for name, part in zip(date.columns, parts.T.copy(), strict=False)
    ]


def _fitting_feature(name: str, texts: Collection[str], order: DateOrder) -> DateFeature | None:
    """Return the feature that reads all texts, of dates in the order or of times; None if there is none."""
    features = (DateFeature(name, order, times=True, days=days) for days in (True, False))
    return next((date for date in features if all(is_date(text, date) for text in texts)), None)


def is_date(text: str, date: DateFeature) -> bool:
    """Return whether a text is a date, or a time, as those of a feature."""
    try:
        return date.seconds(text) is not None
    except ValueError:
        return False


def fitting_orders(texts: Collection[str]) -> tuple[DateOrder, ...]:
    """Return the orders in which all texts are dates, or times."""
    return tuple(order for order in ORDERS if _fitting_feature("", texts, order))


def _not_a_date(series: pl.Series, texts: pl.Series, order: DateOrder) -> ColumnIssue:
    others = fitting_orders(texts.to_list())
    features = [DateFeature(series.name, order, times=True, days=days) for days in (True, False)]
    wrong = min(([text for text in texts.to_list() if not is_date(text, date)] for date in features), key=len)
    remedy = f'set [columns] date_order = "{others[0]}"' if others else "correct or empty these values"
    return ColumnIssue(
        series.name,
        f"is not a {order} date",
        row=first_row(series, pl.Series(wrong)),
        expected="a date such as 2026-01-31 or 2026-01-31 14:05, or nothing if it is missing",
        hint=hint_on(wrong) or remedy,
    )
