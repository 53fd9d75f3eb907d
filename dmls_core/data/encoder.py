"""Encode raw values as the float32 matrix of a model, and decode class indices to labels.

This module needs only ``moments``, the standard library and NumPy: a logged model contains copies of both, so
it loads without DMLS. ``table.fit_encoder`` fits encoders.

The rules are the same for values from a CSV, a list, an ndarray or a pandas Series:

* Missing: ``None``, NaN, pandas' ``NA`` and ``NaT``, the texts of ``MISSING`` (those of pandas), and the
  ``marks`` of a feature, which are those of ``[data] missing``. The texts of ``[data] not_missing`` are
  categories; where a number or a date is needed, they are missing all the same.
* Number: a number, or its text in ASCII digits such as ``-1``, ``.5`` or ``1e3``; where the training values
  are all 0 and 1, also a boolean (``True``, ``"true"``: 1; ``False``, ``"FALSE"``: 0). Anything else is an
  error, infinity and what is beyond the range of float32 included. A missing number becomes ``fill``.
* Category: compared as text without surrounding blanks. Equal numbers are the same category: 1, 1.0, ``"1"``,
  ``"1.0"`` and ``" 1"``, or 0.0000001 and ``"1e-07"``. But ``"01"`` and ``"1e3"`` are codes and therefore
  different categories. ``True`` equals ``"true"``, ignoring case. The code of a category is its position in
  ``categories``; unknown categories get ``unknown``, missing values ``missing``.
* Date: ``2026-01-31``, in the order that the feature has also ``31.1.2026`` or ``1/31/26``, each with ``-``,
  ``.`` or ``/``; ``20260131``; ``31-Jan-2026`` or ``January 31, 2026``. Then possibly a time such as
  ``2:05 PM`` or ``14:05:30.25``, and a zone such as ``Z`` or ``+01:00``, which is converted to UTC. A feature
  of times has such a time only. Fractions of a second are ignored; anything else is an error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .moments import DateOrder, moment, time_of_day  # noqa: TID252 - the copies are in another package

SCHEMA, DATES_SCHEMA, TIMES_SCHEMA, MARKS_SCHEMA, NOT_MISSING_SCHEMA = 1, 2, 3, 4, 5
"""Versions of the JSON form of an encoder: without dates, with dates, with times of the day, with marks of
missing values, with categories that are missing values elsewhere. A release that knows only an earlier one
cannot read it."""

MISSING = frozenset(
    {"", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>"}
    | {"N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"}
)
"""Texts of a missing value, the same as in ``pandas.read_csv``."""

UNKNOWN = -1.0
"""Code of a category that does not occur in the training rows."""

_BOOLEANS = {"true": 1.0, "false": 0.0}
_PATTERN = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_NUMBER, _NUMBERS = re.compile(_PATTERN), re.compile(rf"(?:{_PATTERN}\n)*")
_INFINITE = float.fromhex("0x1.ffffffp127")
"""The smallest number that float32 rounds to infinity."""
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]*)\.[0-9]+")
_EXPONENT = re.compile(r"-?[1-9](?:\.[0-9]+)?e[+-][0-9]{1,3}")
_FEW = 16
"""Values that are converted faster one by one than at once."""

_SHOWN = 60

MAX_CELLS = 20
"""Cells that a ``CellError`` names."""


@dataclass(frozen=True, slots=True)
class BadCell:
    """A value that its column cannot take, or a whole row without ``column``; ``row`` counts from 0."""

    row: int
    column: str
    message: str

    def __str__(self) -> str:
        column = f"column {self.column!r}, " if self.column else ""
        return f"{column}row {self.row + 1}: {self.message}"


class CellError(ValueError):
    """Values that their columns cannot take: the first ``MAX_CELLS`` by row, and if there are ``more``."""

    def __init__(self, cells: Iterable[BadCell], *, more: bool = False) -> None:
        ordered = sorted(cells, key=lambda cell: cell.row)
        self.cells, self.more = tuple(ordered[:MAX_CELLS]), more or len(ordered) > MAX_CELLS
        super().__init__("; ".join(map(str, self.cells)) + ("; and more" if self.more else ""))


def is_missing(value: object, not_missing: Collection[str] = ()) -> bool:
    """Return whether a raw value is missing; the texts ``not_missing`` are not."""
    if value is None:
        return True
    if isinstance(value, str):
        text = value.strip()
        return text in MISSING and text not in not_missing
    if isinstance(value, float | np.floating):
        return math.isnan(value)
    return type(value).__name__ in ("NAType", "NaTType") or (
        isinstance(value, np.datetime64 | np.timedelta64) and bool(np.isnat(value))
    )


def is_mark(value: object, marks: Sequence[str]) -> bool:
    """Return whether a raw value is one of the marks of missing values, without surrounding blanks."""
    return isinstance(value, str) and value.strip() in marks


def category_text(value: object, not_missing: Collection[str] = ()) -> str | None:
    """Return the text by which categories are compared; None for a missing value, as ``is_missing`` says."""
    if is_missing(value, not_missing):
        return None
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, float | np.floating):
        # The shortest text that this float type reads back, without an exponent: 0.1 is "0.1" also as
        # float32, and 1.0 is "1".
        text = np.format_float_positional(value, trim="-") if math.isfinite(value) else str(value)
    else:
        text = str(value).strip()
        if _DECIMAL.fullmatch(text):
            text = text.rstrip("0").rstrip(".")
        elif _EXPONENT.fullmatch(text) and math.isfinite(float(text)):
            # The spelling of very small and very large floats in files; a request may contain the float.
            text = np.format_float_positional(float(text), trim="-")
        elif text.lower() in _BOOLEANS:
            text = text.lower()
    return "0" if text == "-0" else text


def number(value: object, *, booleans: bool = True) -> float:
    """Convert a raw value to a float, NaN if it is missing; raise ``ValueError`` if it is not a number."""
    if is_missing(value):
        return math.nan
    text = value.strip().lower() if isinstance(value, str) else ""
    if isinstance(value, bool | np.bool_) or text in _BOOLEANS:
        if not booleans:
            raise ValueError(f"{value!r} is a boolean, where the training data has numbers")
        return _BOOLEANS[text or str(value).lower()]
    if text.lstrip("+-") == "nan":
        return math.nan
    try:
        if text and not _NUMBER.fullmatch(text):
            raise ValueError
        converted = float(value)  # type: ignore[arg-type]
    except OverflowError:  # an int beyond float64
        converted = math.inf
    except (TypeError, ValueError):
        raise ValueError(f"{repr(value)[:_SHOWN]} is not a number") from None
    if abs(converted) >= _INFINITE:
        raise ValueError(f"{repr(value)[:_SHOWN]} is beyond the range of 32-bit floating point numbers")
    return converted


def read_numbers(
    column: str, values: NDArray[Any], *, marks: Sequence[str] = (), booleans: bool = True
) -> NDArray[np.float64]:
    """Convert raw values as ``number`` does, and ``marks`` to NaN; raise ``CellError`` for the others."""
    numbers = _plain_numbers(values, booleans=booleans) if len(values) > _FEW else None
    if numbers is not None and not (np.abs(numbers) >= _INFINITE).any():
        return numbers
    numbers, cells = np.empty(len(values), dtype=np.float64), []
    for row, value in enumerate(values):
        try:
            numbers[row] = number(value, booleans=booleans)
        except ValueError as error:
            numbers[row] = math.nan
            if not is_mark(value, marks):
                cells.append(BadCell(row, column, str(error)))
                if len(cells) > MAX_CELLS:
                    break
    if cells:
        raise CellError(cells)
    return numbers


def _plain_numbers(values: NDArray[Any], *, booleans: bool) -> NDArray[np.float64] | None:
    """Convert an array of numbers, or of their plain texts, at once; None if it has anything else."""
    if values.dtype.kind in ("biuf" if booleans else "iuf"):
        return values.astype(np.float64)
    if values.dtype.kind != "O":
        return None
    missing = np.equal(values, np.array(None, dtype=object))
    present = values[~missing] if missing.any() else values
    types = set(map(type, present))
    plain = types <= {int, float} or (types == {str} and _NUMBERS.fullmatch("\n".join([*present, ""])))
    if not plain:
        return None
    numbers = np.full(len(values), math.nan)
    try:
        numbers[~missing] = present.astype(np.float64)
    except OverflowError:  # an int beyond float64
        return None
    return numbers


class _OneColumn:
    """A feature that has one column of the matrix."""

    __slots__ = ()
    name: str

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names of its columns of the matrix."""
        return (self.name,)


@dataclass(frozen=True, slots=True)
class NumberFeature(_OneColumn):
    """A column of numbers.

    Attributes:
        fill: replaces missing values; None keeps NaN.
        range: the smallest and the largest training value; None if no one recorded it.
    """

    name: str
    fill: float | None = None
    marks: tuple[str, ...] = ()
    range: tuple[float, float] | None = None

    @property
    def booleans(self) -> bool:
        """Return whether booleans are values of this column."""
        return self.range is None or set(self.range) <= {0.0, 1.0}

    def encode(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """Encode a column as float32 of shape (n_rows,); raise ``CellError`` if a value is not a number."""
        numbers = read_numbers(self.name, values, marks=self.marks, booleans=self.booleans)
        encoded = numbers.astype(np.float32)
        if self.fill is not None:
            encoded[np.isnan(encoded)] = self.fill
        return encoded

    def as_json(self) -> dict[str, Any]:
        """Return the feature as JSON data."""
        return {"name": self.name, "kind": "number", "fill": self.fill, **_marks(self), **_range(self)}


@dataclass(frozen=True, slots=True)
class CategoryFeature(_OneColumn):
    """A column of categories.

    Attributes:
        categories: texts as returned by ``category_text``, in the order of their codes 0, 1, 2, ...
        missing: code of a missing value; it may be NaN.
        unknown: code of a category that is not listed.
        not_missing: texts of ``MISSING`` that are categories, those of ``[data] not_missing``.
    """

    name: str
    categories: tuple[str, ...]
    missing: float = math.nan
    unknown: float = UNKNOWN
    marks: tuple[str, ...] = ()
    not_missing: tuple[str, ...] = ()

    def text(self, value: object) -> str | None:
        """Return the category of a raw value, which need not be listed; None for a missing value."""
        return None if is_mark(value, self.marks) else category_text(value, self.not_missing)

    def encode(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """Return the codes, float32 of shape (n_rows,)."""
        codes: dict[str | None, float] = {text: float(code) for code, text in enumerate(self.categories)}
        codes[None] = self.missing
        if self.marks:
            codes |= dict.fromkeys(self.marks, self.missing)
        if set(map(type, values)) <= {str, type(None)}:  # others may be equal, as True and 1 are
            distinct = {
                value: codes.get(category_text(value, self.not_missing), self.unknown)
                for value in set(values)
            }
            return np.fromiter(map(distinct.__getitem__, values), dtype=np.float32, count=len(values))
        encoded = (codes.get(category_text(value, self.not_missing), self.unknown) for value in values)
        return np.fromiter(encoded, dtype=np.float32, count=len(values))

    def as_json(self) -> dict[str, Any]:
        """Return the feature as JSON data; a NaN code is null."""
        return {
            "name": self.name,
            "kind": "category",
            "categories": list(self.categories),
            "missing": None if math.isnan(self.missing) else self.missing,
            "unknown": self.unknown,
            **_marks(self),
            **({"not_missing": list(self.not_missing)} if self.not_missing else {}),
        }


@dataclass(frozen=True, slots=True)
class DateFeature:
    """A column of dates in the given order; ``fill`` replaces the parts of a missing date, None keeps NaN.

    ``range`` has the first and the last training value in days, or hours without ``days``.

    The matrix has a column for each part: with ``days`` the ``days`` from 1970-01-01, ``month`` (1 to 12),
    ``day`` of the month and ``weekday`` (Monday is 0); with ``times`` the ``hour``: 14.5 is 14:30. Without
    ``days``, it is a column of times of the day.
    """

    name: str
    order: DateOrder = "year-first"
    times: bool = False
    fill: tuple[float, ...] | None = None
    days: bool = True
    marks: tuple[str, ...] = ()
    range: tuple[float, float] | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names of its columns of the matrix."""
        parts = ("days", "month", "day", "weekday") if self.days else ()
        return tuple(f"{self.name} ({part})" for part in (*parts, *(("hour",) if self.times else ())))

    def seconds(self, value: object) -> int | None:
        """Return the seconds from 1970-01-01, or midnight, None if missing; raise as ``moment`` does."""
        if is_missing(value) or (self.marks and is_mark(value, self.marks)):
            return None
        return moment(value, self.order) if self.days else time_of_day(value)

    def encode(self, values: Iterable[object]) -> NDArray[np.float32]:
        """Return the parts, float32 of shape (n_rows, n_parts); raise ``CellError`` if one is not a date."""
        moments: list[int | None] = []
        cells: list[BadCell] = []
        for row, value in enumerate(values):
            try:
                moments.append(self.seconds(value))
            except ValueError as error:
                cells.append(BadCell(row, self.name, str(error)))
                if len(cells) > MAX_CELLS:
                    break
        if cells:
            raise CellError(cells)
        days, seconds = np.divmod(np.array([stamp or 0 for stamp in moments], dtype=np.int64), 86_400)
        parts: list[NDArray[Any]] = [seconds / 3600] if self.times else []
        if self.days:
            dates = days.astype("datetime64[D]")
            months = dates.astype("datetime64[M]")
            day = (dates - months).astype(np.int64) + 1
            parts = [days, months.astype(np.int64) % 12 + 1, day, (days + 3) % 7, *parts]
        encoded = np.stack(parts, axis=1).astype(np.float32)
        encoded[[stamp is None for stamp in moments]] = math.nan if self.fill is None else self.fill
        return encoded

    def as_json(self) -> dict[str, Any]:
        """Return the feature as JSON data."""
        fields = asdict(self)
        del fields["marks"], fields["range"]
        if self.days:
            del fields["days"]
        return {"kind": "date", **fields, **_marks(self), **_range(self)}


Feature = NumberFeature | CategoryFeature | DateFeature


def _marks(feature: Feature) -> dict[str, list[str]]:
    return {"marks": list(feature.marks)} if feature.marks else {}


def _range(feature: NumberFeature | DateFeature) -> dict[str, list[float]]:
    return {"range": list(feature.range)} if feature.range else {}


@dataclass(frozen=True, slots=True)
class Target:
    """The column to predict; ``labels`` are the classes as spelled in the data, None for a number."""

    name: str
    labels: tuple[str, ...] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the target as JSON data."""
        if self.labels is None:
            return {"name": self.name, "kind": "number"}
        return {"name": self.name, "kind": "label", "labels": list(self.labels)}


@dataclass(frozen=True, slots=True)
class Encoder:
    """The features of a model, and its target; the matrix has the columns of each feature in turn."""

    features: tuple[Feature, ...]
    target: Target

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Return the raw columns that ``transform`` needs."""
        return tuple(feature.name for feature in self.features)

    @property
    def column_names(self) -> tuple[str, ...]:
        """Return the columns of the matrix."""
        return tuple(name for feature in self.features for name in feature.columns)

    @property
    def column_features(self) -> tuple[Feature, ...]:
        """Return the feature of each column of the matrix."""
        return tuple(feature for feature in self.features for _ in feature.columns)

    @property
    def not_missing(self) -> frozenset[str]:
        """Return the texts of ``MISSING`` that are categories or classes."""
        categories = [feature for feature in self.features if isinstance(feature, CategoryFeature)]
        texts = (text for feature in categories for text in feature.not_missing)
        return frozenset(texts) | MISSING.intersection(self.target.labels or ())

    def transform(self, columns: Mapping[str, ArrayLike]) -> NDArray[np.float32]:
        """Encode raw values as float32, C-contiguous, of shape (n_rows, n_columns).

        Args:
            columns: raw values by column name, each of length n_rows: lists, ndarrays or Series, or a pandas
                DataFrame. Columns that are not features are ignored.

        Raises:
            CellError: values are not numbers or dates.
            ValueError: columns are missing or differ in length.
        """
        if missing := [name for name in self.feature_names if name not in columns]:
            raise ValueError(f"columns are missing: {', '.join(map(repr, missing))}")
        raw = {name: _one_dimensional(name, columns[name]) for name in self.feature_names}
        lengths = {name: len(values) for name, values in raw.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"columns differ in length: {lengths}")
        rows, at = next(iter(lengths.values()), 0), 0
        matrix = np.empty((rows, len(self.column_names)), dtype=np.float32)
        cells: list[BadCell] = []
        more = False
        for feature in self.features:
            width = len(feature.columns)
            try:
                matrix[:, at : at + width] = feature.encode(raw[feature.name]).reshape(rows, width)
            except CellError as error:
                cells += error.cells
                more = more or error.more
            at += width
        if cells:
            raise CellError(cells, more=more)
        return matrix

    def with_ranges(self, ranges: Mapping[str, Sequence[float]]) -> Encoder:
        """Return the encoder with the smallest and the largest training value of numbers and dates."""
        spans = {name: (float(low), float(high)) for name, (low, high) in ranges.items()}
        features = (
            feature
            if isinstance(feature, CategoryFeature)
            else replace(feature, range=spans.get(feature.name, feature.range))
            for feature in self.features
        )
        return replace(self, features=tuple(features))

    def decode(self, indices: Iterable[int]) -> list[str]:
        """Return the labels of class indices.

        Raises:
            ValueError: the target is a number and has no labels.
            IndexError: there is no such class.
        """
        if self.target.labels is None:
            raise ValueError(f"the target {self.target.name!r} is a number and has no labels")
        labels = self.target.labels
        return [labels[_class_index(index, len(labels))] for index in indices]

    def as_json(self) -> dict[str, Any]:
        """Return the encoder as JSON data, which ``from_json`` reads."""
        return {
            "schema": self._schema,
            "features": [feature.as_json() for feature in self.features],
            "target": self.target.as_json(),
        }

    @property
    def _schema(self) -> int:
        if any(isinstance(feature, CategoryFeature) and feature.not_missing for feature in self.features):
            return NOT_MISSING_SCHEMA
        if any(feature.marks for feature in self.features):
            return MARKS_SCHEMA
        dates = [feature for feature in self.features if isinstance(feature, DateFeature)]
        if not dates:
            return SCHEMA
        return DATES_SCHEMA if all(date.days for date in dates) else TIMES_SCHEMA

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Encoder:
        """Build an encoder from the result of ``as_json``.

        Raises:
            ValueError: it is not an encoder, or one of a later release.
        """
        if not isinstance(data, Mapping) or data.get("schema") not in range(SCHEMA, NOT_MISSING_SCHEMA + 1):
            raise ValueError(f"not an encoder of schema {SCHEMA} to {NOT_MISSING_SCHEMA}")
        try:
            labels = data["target"].get("labels")
            return cls(
                features=tuple(_feature(feature) for feature in data["features"]),
                target=Target(data["target"]["name"], None if labels is None else tuple(labels)),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not an encoder: {error!r}") from None


def _feature(data: Mapping[str, Any]) -> Feature:
    marks, span = tuple(data.get("marks", ())), data.get("range")
    ends = None if span is None else (float(span[0]), float(span[1]))
    if data["kind"] == "number":
        return NumberFeature(data["name"], data["fill"], marks, ends)
    if data["kind"] == "date":
        fill, days = data["fill"] and tuple(data["fill"]), data.get("days", True)
        return DateFeature(data["name"], data["order"], data["times"], fill, days, marks, ends)
    if data["kind"] != "category":
        raise ValueError(f"not an encoder: a feature of kind {data['kind']!r}")
    missing = math.nan if data["missing"] is None else data["missing"]
    not_missing = tuple(data.get("not_missing", ()))
    return CategoryFeature(
        data["name"], tuple(data["categories"]), missing, data["unknown"], marks, not_missing
    )


def _one_dimensional(name: str, values: ArrayLike) -> NDArray[Any]:
    """Convert values to an array; a list becomes an array of objects, whatever its types."""
    if hasattr(values, "dtype"):
        array = np.asarray(values)
    else:
        items: Sequence[object] = list(values)  # type: ignore[arg-type]
        array = np.empty(len(items), dtype=object)
        array[:] = items
    if array.ndim != 1:
        raise ValueError(f"column {name!r} must have one dimension, got shape {array.shape}")
    return array


def _class_index(index: int, classes: int) -> int:
    if not 0 <= index < classes:
        raise IndexError(f"there is no class {index}: the target has {classes}")
    return int(index)
