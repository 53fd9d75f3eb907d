"""Read the data for Great Expectations: a pandas frame of numbers and texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl

from dmls_core.data.categoricals import DistinctTexts
from dmls_core.data.column_roles import ColumnRoles, assign_roles
from dmls_core.data.encoder import MISSING
from dmls_core.data.files import DataFiles
from dmls_core.data.sources import ColumnType
from dmls_core.data.validation.expectations import Facts
from dmls_core.errors import DataError
from dmls_core.settings import DataLimits
from dmls_core.spec import ColumnExpectation, Spec


@dataclass(frozen=True, slots=True)
class Frame:
    """The data to validate.

    Attributes:
        data: numbers as floats, text as ``str`` objects, missing values as NaN and None. A column of numbers
            in which some values are texts contains both.
        missing: columns of the spec that are missing in a file.
        roles: None if a column is missing.
    """

    data: pd.DataFrame
    facts: dict[str, Facts]
    missing: tuple[str, ...]
    roles: ColumnRoles | None


def read_frame(spec: Spec, paths: Sequence[Path], limits: DataLimits) -> Frame:
    """Read all columns that the spec names; raise ``DataError`` if a file is broken."""
    files = DataFiles(paths, spec.data.format, limits)
    first = files.sources[0]
    try:
        roles = assign_roles(spec.columns, first.names, first.path.name, first.header_line)
    except DataError:  # columns are missing: the expectations report them
        roles = None
    used = roles.used if roles else (*spec.columns.features, spec.columns.target)
    names = dict.fromkeys((*used, *spec.expectations.columns))
    present = [name for name in names if all(name in source.names for source in files.sources)]
    column_types = files.column_types(present)
    present = [name for name in present if column_types[name] != "unusable"]
    frame = files.read({name: _type(name, column_types[name], spec) for name in present})
    empty = frame.select(pl.all_horizontal(pl.all().is_null())).to_series()
    frame = frame.filter(~empty)
    facts: dict[str, Facts] = {}
    columns: dict[str, pd.Series] = {}
    for name in present:
        series = frame.drop_in_place(name)
        facts[name], columns[name] = _column(series, as_text=_as_text(name, spec))
    # No copy is needed: Great Expectations does not modify the data.
    data = pd.DataFrame(columns, copy=False)
    return Frame(data, facts, tuple(name for name in names if name not in present), roles)


def _as_text(name: str, spec: Spec) -> bool:
    own = spec.expectations.columns.get(name) or ColumnExpectation()
    bounded = own.min is not None or own.max is not None
    return own.pattern is not None or (name in spec.columns.categorical and not bounded)


def _type(name: str, column_type: ColumnType, spec: Spec) -> pl.DataType:
    if column_type in ("truth", "time", "category", "text") or _as_text(name, spec):
        return pl.Categorical()
    # Values with bounds are compared in double precision.
    return pl.Float64() if name in spec.expectations.columns else pl.Float32()


def _column(series: pl.Series, *, as_text: bool) -> tuple[Facts, pd.Series]:
    if series.dtype.is_numeric():
        return Facts(numeric=True), pd.Series(series.fill_nan(None).to_numpy(), copy=False)
    texts = DistinctTexts.of(series)
    numeric = 2 * texts.numbers > texts.rows
    if numeric and not as_text and texts.numbers == texts.rows:
        numbers = series.replace_strict(
            texts.frame["text"], texts.frame["number"], default=None, return_dtype=pl.Float64
        )
        return Facts(numeric=True), pd.Series(numbers.to_numpy())
    stripped = series.cast(pl.String).str.strip_chars()
    values = pl.select(pl.when(~stripped.is_in(list(MISSING))).then(stripped)).to_series().to_numpy()
    distinct = tuple(texts.frame["stripped"].unique(maintain_order=True).to_list())
    if numeric and not as_text:
        values = np.array([_number_or_text(value) for value in values], dtype=object)
    return Facts(numeric and not as_text, distinct), pd.Series(values, dtype=object)


def _number_or_text(value: str | None) -> float | str | None:
    try:
        return value if value is None else float(value)
    except ValueError:
        return value
