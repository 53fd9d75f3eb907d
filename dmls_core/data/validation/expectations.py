"""Read the data to validate, and plan its expectations.

Every spec implies:

* the data has a row, and every column that the spec names,
* a feature with more numbers than other values contains only numbers, and so does a regressor's target,
* at most 95 % of a feature's values are missing, and at most 50 % of the target's (training leaves out rows
  without a target); ``[expectations] max_missing`` sets both,
* the target has at least two different values.

``[expectations.columns.NAME]`` adds ``min`` and ``max`` (of numbers), ``values``, ``pattern`` (a regular
expression that matches anywhere in the text unless it has ``^`` and ``$``; the column is then text, without
bounds), ``max_missing`` and ``unique``. The column need not be a feature. A missing value meets all of them
except ``max_missing``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import polars as pl

from dmls_core.data.columns import DistinctTexts
from dmls_core.data.encoder import MISSING, category_text
from dmls_core.data.sources import ColumnType, DataFiles
from dmls_core.data.table_reader import ColumnRoles, assign_roles
from dmls_core.errors import DataError
from dmls_core.settings import DataLimits
from dmls_core.spec import ColumnExpectation, Expectations, Spec

Kind = Literal[
    "row_count", "exists", "numbers", "missing", "between", "in_set", "pattern", "unique", "unique_count"
]

FEATURE_MISSING = 0.95
TARGET_MISSING = 0.5

_FLOATS = ["float", "float32", "float64"]


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about a column: ``numeric`` if most values are numbers; its distinct ``texts`` if any is not."""

    numeric: bool
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Expectation:
    """One expectation, as a statement in plain words; a column has at most one of each kind.

    ``column`` is empty for the table as a whole. ``arguments`` are those of Great Expectations except the
    column.
    """

    column: str
    kind: Kind
    statement: str
    arguments: dict[str, Any] = field(default_factory=dict)


def plan_expectations(
    spec: Spec, roles: ColumnRoles | None, facts: Mapping[str, Facts], missing: tuple[str, ...]
) -> list[Expectation]:
    """Return all expectations. ``roles`` is None if columns are missing; ``missing`` names them."""
    wanted = spec.expectations
    found: list[Expectation] = [
        _row_count(wanted),
        *(Expectation(name, "exists", "the column exists") for name in (*facts, *missing)),
    ]
    for name, fact in facts.items():
        own = wanted.columns.get(name) or ColumnExpectation()
        is_feature = roles is not None and name in roles.features
        is_target = name == spec.columns.target
        if (
            (is_feature and fact.numeric and name not in spec.columns.categorical)
            or (is_target and spec.task == "regression")
            or own.min is not None
            or own.max is not None
        ):
            found.append(Expectation(name, "numbers", "every value is a number", {"type_list": _FLOATS}))
        if is_feature or is_target or own.max_missing is not None:
            found.append(_missing(name, spec, own))
        if is_target:
            statement = "there are at least 2 different values"
            found.append(Expectation(name, "unique_count", statement, {"min_value": 2}))
        found += _own(name, own, fact)
    return found


def _row_count(wanted: Expectations) -> Expectation:
    least = wanted.min_rows or 1
    most = wanted.max_rows
    return Expectation(
        "",
        "row_count",
        f"there {'is' if least == 1 else 'are'} at least {least:,} row{'s' * (least > 1)}"
        + (f" and at most {most:,}" if most else ""),
        {"min_value": least, "max_value": most},
    )


def _missing(name: str, spec: Spec, own: ColumnExpectation) -> Expectation:
    default = TARGET_MISSING if name == spec.columns.target else FEATURE_MISSING
    shares = (own.max_missing, spec.expectations.max_missing, default)
    share = next(share for share in shares if share is not None)
    statement = f"at most {100 * share:g} % of the values are missing" if share else "no value is missing"
    return Expectation(name, "missing", statement, {"mostly": 1 - share})


def _own(name: str, own: ColumnExpectation, fact: Facts) -> Iterator[Expectation]:
    bounds = [f"at least {own.min}"] if own.min is not None else []
    bounds += [f"at most {own.max}"] if own.max is not None else []
    if bounds and fact.numeric and not fact.texts:  # texts already fail the expectation of numbers
        arguments = {"min_value": own.min, "max_value": own.max}
        yield Expectation(name, "between", f"every value is {' and '.join(bounds)}", arguments)
    if own.values is not None:
        shown = ", ".join(map(str, own.values[:20])) + (", …" if len(own.values) > 20 else "")
        allowed = {"value_set": _spelled(own.values, fact)}
        yield Expectation(name, "in_set", f"every value is one of {shown}", allowed)
    if own.pattern is not None:
        yield Expectation(name, "pattern", f"every value matches {own.pattern}", {"regex": own.pattern})
    if own.unique:
        yield Expectation(name, "unique", "no value occurs twice")


def _spelled(values: tuple[Any, ...], fact: Facts) -> list[Any]:
    """Return the allowed values as spelled in the data: 1 also allows the text 1.0, as in a category."""
    if not fact.texts:
        return list(values)
    allowed = {category_text(value) for value in values}
    return [text for text in fact.texts if category_text(text) in allowed]


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
        facts[name], columns[name] = _facts_and_values(series, as_text=_as_text(name, spec))
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


def _facts_and_values(series: pl.Series, *, as_text: bool) -> tuple[Facts, pd.Series]:
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
