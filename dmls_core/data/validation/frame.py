"""The data as Great Expectations sees it: a pandas frame of numbers and texts, missing values told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl

from dmls_core.data.encoder import MISSING
from dmls_core.data.files import Files
from dmls_core.data.roles import Roles, choose_roles
from dmls_core.data.source import Look
from dmls_core.data.texts import Texts
from dmls_core.data.validation.expectations import Facts
from dmls_core.errors import DataError
from dmls_core.settings import DataLimits
from dmls_core.spec import ColumnExpectation, Spec


@dataclass(frozen=True, slots=True)
class Frame:
    """The data to look at.

    Attributes:
        data: numbers as floats, text as ``str`` objects, missing values as NaN and None. A column that should
            be numbers but holds some texts holds both.
        facts: what each column looks like.
        missing: columns that the spec names and that a file lacks.
        roles: which columns are features; None if a column is missing.
    """

    data: pd.DataFrame
    facts: dict[str, Facts]
    missing: tuple[str, ...]
    roles: Roles | None


def read_frame(spec: Spec, paths: Sequence[Path], limits: DataLimits) -> Frame:
    """Read all columns that the spec names.

    Raises:
        DataError: a file is broken.
    """
    files = Files(paths, spec.data.format, limits)
    first = files.sources[0]
    try:
        roles = choose_roles(spec.columns, first.names, first.path.name, first.header_line)
    except DataError:  # of missing columns; the expectations say so
        roles = None
    used = roles.used if roles else (*spec.columns.features, spec.columns.target)
    names = dict.fromkeys((*used, *spec.expectations.columns))
    present = [name for name in names if all(name in source.names for source in files.sources)]
    looks = files.looks(present)
    present = [name for name in present if looks[name] != "unusable"]
    frame = files.read({name: _type(name, looks[name], spec) for name in present})
    empty = frame.select(pl.all_horizontal(pl.all().is_null())).to_series()
    frame = frame.filter(~empty)
    facts: dict[str, Facts] = {}
    columns: dict[str, pd.Series] = {}
    for name in present:
        series = frame.drop_in_place(name)
        facts[name], columns[name] = _column(series, as_text=_as_text(name, spec))
    # Without a copy: Great Expectations only looks.
    data = pd.DataFrame(columns, copy=False)
    return Frame(data, facts, tuple(name for name in names if name not in present), roles)


def _as_text(name: str, spec: Spec) -> bool:
    own = spec.expectations.columns.get(name) or ColumnExpectation()
    bounded = own.min is not None or own.max is not None
    return own.pattern is not None or (name in spec.columns.categorical and not bounded)


def _type(name: str, look: Look, spec: Spec) -> pl.DataType:
    if look in ("truth", "time", "category", "text") or _as_text(name, spec):
        return pl.Categorical()
    # What the user wrote bounds for is compared exactly as written.
    return pl.Float64() if name in spec.expectations.columns else pl.Float32()


def _column(series: pl.Series, *, as_text: bool) -> tuple[Facts, pd.Series]:
    if series.dtype.is_numeric():
        return Facts(numeric=True), pd.Series(series.fill_nan(None).to_numpy(), copy=False)
    texts = Texts.of(series)
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
