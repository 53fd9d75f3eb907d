"""Gather the facts that expectations are about, for all columns in one pass over the files.

Counts of all columns come from aggregates that Polars computes while it reads, so neither the table nor a
copy of it is in memory. Only columns with expectations of their values are read as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

import polars as pl

from dmls_core.data.encoder import MISSING
from dmls_core.data.formats.data_files import DataFiles
from dmls_core.data.formats.source import ColumnType
from dmls_core.data.table.reader import ColumnRoles, assign_roles
from dmls_core.errors import DataError
from dmls_core.settings import DataLimits
from dmls_core.spec import Spec
from dmls_core.spec.values import MissingOrValue


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """What is known of a column.

    Attributes:
        numeric: most values are numbers, and the column is not a category or date, and has no pattern.
        missing: rows without a value.
        texts: values that are not numbers.
        values: numbers, of an integer type if all are integers, or ``String`` without surrounding blanks;
            null if missing. None if no expectation is about them. The texts of a target are there once each,
            unless it has expectations of its own.
        missing_texts: texts that count as missing, though [data] not_missing could name them.
    """

    numeric: bool
    missing: int
    texts: int
    values: pl.Series | None = None
    missing_texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What is known of the data.

    Attributes:
        rows: number of rows with a value.
        absent: columns of the spec that a file lacks.
        roles: None if a column is absent.
    """

    rows: int
    columns: dict[str, ColumnFacts]
    absent: tuple[str, ...]
    roles: ColumnRoles | None


def gather_facts(spec: Spec, paths: Sequence[Path], limits: DataLimits) -> TableFacts:
    """Read what expectations need of all columns that the spec names.

    Raises:
        DataError: a file is broken.
    """
    files = DataFiles(paths, spec.data.format, limits)
    first = files.sources[0]
    try:
        roles = assign_roles(spec.columns, first.names, first.path.name, first.header_line)
    except DataError:  # columns are missing: the expectations report them
        roles = None
    used = roles.used if roles else (*spec.columns.features, spec.columns.target)
    names = dict.fromkeys((*used, *spec.expectations.columns))
    common = frozenset.intersection(*(frozenset(source.names) for source in files.sources))
    column_types = files.column_types(common)
    present = [name for name in names if name in common and column_types[name] != "unusable"]
    as_text = _read_as_text(spec)
    types = {name: _type(name, column_types[name], spec, as_text=name in as_text) for name in present}
    full_columns = frozenset((spec.columns.target, *spec.expectations.columns))

    positions = {name: position for position, name in enumerate(present)}

    not_missing = spec.data.not_missing

    def aggregates(position: int, column: pl.Expr, dtype: pl.DataType) -> list[pl.Expr]:
        expressions = _counts(column, dtype, not_missing)
        if (name := present[position]) in spec.expectations.columns or (
            name in full_columns and dtype.is_numeric()
        ):
            expressions["values"] = column.implode()
        elif name in full_columns:
            # Of a target, only the different texts count: all of them take several times its memory.
            expressions["values"] = column.unique(maintain_order=True).implode()
        return [expression.alias(f"{key} {position}") for key, expression in expressions.items()]

    totals = files.aggregate(types, aggregates)
    empty, rows = int(totals["empty"].sum()), int(totals["rows"].sum())
    counts = totals.select(pl.selectors.numeric().sum()).row(0, named=True) if present else {}
    # Only a sum shows cheaply that there may be a NaN.
    odd = [name for name, at in positions.items() if not math.isfinite(counts.get(f"sum {at}") or 0)]
    nans = _count_nans(files, {name: types[name] for name in odd})
    columns = {
        name: _facts(
            missing=counts[f"missing {position}"] + nans.get(name, 0) - empty,
            texts=counts.get(f"texts {position}", 0),
            rows=rows - empty,
            as_text=name in as_text,
            is_class=name == spec.columns.target and spec.task == "classification",
            values=totals[f"values {position}"] if name in full_columns else None,
            not_missing=not_missing,
            not_missing_rows=counts.get(f"not missing {position}", 0),
            missing_texts=totals[f"missing texts {position}"] if types[name] == pl.String else None,
        )
        for name, position in positions.items()
    }
    mixed = [
        name for name, facts in columns.items() if facts.numeric and facts.texts and name not in full_columns
    ]
    if mixed := mixed[: limits.issues]:
        texts = files.read(dict.fromkeys(mixed, pl.String()))
        columns |= {name: replace(columns[name], values=_stripped(texts[name])) for name in mixed}
    return TableFacts(rows - empty, columns, tuple(name for name in names if name not in columns), roles)


def _read_as_text(spec: Spec) -> frozenset[str]:
    """Return the columns to read as text: with a pattern, or categories and dates without bounds."""
    by_column = spec.expectations.columns
    bounded = {name for name, column in by_column.items() if column.min is not None or column.max is not None}
    patterns = (name for name, column in by_column.items() if column.pattern is not None)
    texts = (*spec.columns.categorical, *spec.columns.dates)
    return frozenset((*patterns, *(name for name in texts if name not in bounded)))


def _type(name: str, column_type: ColumnType, spec: Spec, *, as_text: bool) -> pl.DataType:
    if column_type in ("truth", "time", "category", "text") or as_text:
        return pl.String()
    # As text, every number stays what it is: Float64 merges integers above 2**53, such as ids.
    if name in spec.expectations.columns or (name == spec.columns.target and spec.task == "classification"):
        return pl.String()
    return pl.Float64() if name == spec.columns.target else pl.Float32()


_MISSING = list(MISSING)


def _counts(column: pl.Expr, dtype: pl.DataType, not_missing: Collection[str]) -> dict[str, pl.Expr]:
    if dtype.is_numeric():
        return {"missing": column.null_count(), "sum": column.sum()}
    stripped = column.str.strip_chars()
    present = column.is_not_null() & ~stripped.is_in(_MISSING)
    number = stripped.cast(pl.Float64, strict=False)
    counts = {"missing": (~present).sum(), "texts": (present & number.is_null()).sum()}
    doubtful = stripped.is_in([text for text in get_args(MissingOrValue) if text not in not_missing])
    counts["missing texts"] = stripped.filter(doubtful).unique().implode()
    return counts | ({"not missing": stripped.is_in(list(not_missing)).sum()} if not_missing else {})


def _count_nans(files: DataFiles, types: Mapping[str, pl.DataType]) -> dict[str, int]:
    """Return the numbers of NaN in columns of numbers; they are read again."""
    if not types:
        return {}

    def count(position: int, column: pl.Expr, dtype: pl.DataType) -> list[pl.Expr]:
        nans = column.is_nan().sum() if dtype.is_numeric() else pl.lit(0)
        return [nans.alias(f"nan {position}")]

    totals = files.aggregate(types, count)
    return {name: int(totals[f"nan {position}"].sum()) for position, name in enumerate(types)}


def _facts(
    *,
    missing: int,
    texts: int,
    rows: int,
    as_text: bool,
    is_class: bool,
    values: pl.Series | None,
    not_missing: Collection[str],
    not_missing_rows: int,
    missing_texts: pl.Series | None,
) -> ColumnFacts:
    numeric = not as_text and texts < (rows - missing) - texts
    if not_missing_rows and (is_class or not numeric):
        missing, texts, numeric = missing - not_missing_rows, texts + not_missing_rows, False
    else:
        not_missing = ()
    if values is not None:
        values = values.explode()
        values = _stripped(values, not_missing) if values.dtype == pl.String else values.fill_nan(None)
        if numeric and not texts:
            values = _numbers(values)
    doubtful = missing_texts.explode().drop_nulls().unique().sort() if missing_texts is not None else ()
    return ColumnFacts(numeric, missing, texts, values, () if numeric else tuple(doubtful))


def _numbers(values: pl.Series) -> pl.Series:
    """Return numbers as integers, if they are, else as ``Float64``."""
    for dtype in (pl.Int64, pl.Int128) if values.dtype == pl.String else ():
        integers = values.cast(dtype, strict=False)
        if integers.null_count() == values.null_count():
            return integers
    return values.cast(pl.Float64).fill_nan(None)


def _stripped(texts: pl.Series, not_missing: Collection[str] = ()) -> pl.Series:
    stripped = texts.str.strip_chars()
    return stripped.set(stripped.is_in(list(MISSING.difference(not_missing))), None)
