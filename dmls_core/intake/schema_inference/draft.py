"""Describe the columns of a sample, and draft a spec for one of them as the target."""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime, time, timedelta
from itertools import pairwise
from typing import Any, Literal

from dmls_core.data.encoder import category_text, is_missing, number
from dmls_core.data.moments import DateOrder
from dmls_core.data.table.columns import most_categories
from dmls_core.data.table.dates import ORDERS, fitting_orders
from dmls_core.errors import DataError, ValidationIssue
from dmls_core.intake.data_notes import first_padded
from dmls_core.settings import DataLimits
from dmls_core.spec.definitions import Task

ColumnKind = Literal["number", "code", "category", "date", "id", "text", "constant", "empty", "unusable"]
"""The kind of a column.

A ``code`` has few integers that recur often: numbers that may be categories. An ``id`` identifies rows;
``text`` has too many distinct values to be a category.
"""

_REASONS: dict[ColumnKind, str] = {
    "id": "an ID: almost every row has its own value",
    "text": "free text",
    "date": "not all of its dates can be read",
    "constant": "one value in all rows",
    "empty": "no values",
    "unusable": "nested or binary",
}
"""Why the drafted spec leaves a column of this kind out."""

TOP = 20
"""Number of most frequent values to list."""

SHOWN = 80
"""Characters of a listed value."""

BINS = 16
"""Bins of a histogram."""

FEW = 20
"""Largest number of distinct integers of a code."""

FIRST = 100
"""Rows of the beginning that every sample has, without gaps."""

_CODE_ROWS = 5
"""Smallest number of rows per distinct value of a code."""

_ID_NAME = re.compile(
    r"(?:^|[ _.-])(?:id|ids|uuid|guid|key|index|idx|no|nr|number|rownum|row)$", re.IGNORECASE
)
_CAMEL_ID = re.compile(r"[a-z]I[dD]$")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
DATE = re.compile(
    r"(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](?:\d{4}|\d{2})"
    r"|\d{1,2}[-. ]{1,2}[A-Za-z]{3,9}[-., ]{1,2}(?:\d{4}|\d{2})|[A-Za-z]{3,9}\.? \d{1,2},? \d{4})"
    r"(?:[T ]\d{1,2}:\d{2}.*)?|\d{1,2}:\d{2}(?::\d{2}.*)?(?: ?[AaPp][Mm])?"
)
"""Texts that look like dates, or times of the day."""

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_QUANTITY = re.compile(r"[-+(]?(?:[$€£¥₹] ?|[A-Z]{3} )?[-+]?\d[\d.,' ]*(?: ?(?:[$€£¥₹%]|[A-Za-z]{1,4}))?\)?")
_NESTED = re.compile(r"\[.*\]|\{.*\}", re.DOTALL)
_COMPACT = re.compile(r"(?:19|20)\d{2}[01]\d[0-3]\d")
"""A date without separators, unless it is a number."""

_MOSTLY = 0.9
"""Share of the values that decides on the kind."""


@dataclass(frozen=True, slots=True)
class InferredColumn:
    """A column of the sample.

    Attributes:
        missing: number of rows without a value.
        top: the most frequent values and their counts.
        low: smallest number.
        high: largest number.
        whole: whether all numbers are integers.
        histogram: counts in ``BINS`` bins of equal width from ``low`` to ``high``.
        orders: in which all values are dates; empty unless the column is a date.
        flaw: why values that look like numbers, or like categories, are not used as they are; else empty.
    """

    name: str
    kind: ColumnKind
    missing: int
    distinct: int
    top: tuple[tuple[str, int], ...] = ()
    low: float | None = None
    high: float | None = None
    whole: bool = False
    histogram: tuple[int, ...] = ()
    orders: tuple[DateOrder, ...] = ()
    flaw: str = ""

    @property
    def reason(self) -> str:
        """Return why the column is no feature; empty if it can be one."""
        return "" if self.orders else self.flaw or _REASONS.get(self.kind, "")

    def as_json(self) -> dict[str, Any]:
        """Return the column as JSON data."""
        fields = {field: getattr(self, field) for field in self.__slots__}  # asdict would copy every value
        return fields | {"reason": self.reason, "as_target": asdict(propose(self))}


def describe(
    name: str,
    values: Sequence[Any],
    kind_of_file: str,
    limits: DataLimits,
    not_missing: Collection[str] = (),
) -> InferredColumn:
    """Describe a column of the sample from its raw values, and its type unless the file has none.

    The texts ``not_missing`` are values, except among numbers and dates.
    """
    column = _describe(name, values, kind_of_file, limits, ())
    if not not_missing or column.low is not None or column.kind in ("number", "date", "unusable"):
        return column
    return _describe(name, values, kind_of_file, limits, not_missing)


def _describe(
    name: str, values: Sequence[Any], kind_of_file: str, limits: DataLimits, not_missing: Collection[str]
) -> InferredColumn:
    present = [value for value in values if not is_missing(value, not_missing)]
    missing = len(values) - len(present)
    if not values:
        orders = ORDERS if kind_of_file.startswith(("Date", "Time")) else ()
        return InferredColumn(name, _kind_of_type(kind_of_file), 0, 0, orders=orders)
    if any(isinstance(value, bytes | list | dict) for value in present) or _nested(kind_of_file):
        return InferredColumn(name, "unusable", missing, 0)
    if not present:
        return InferredColumn(name, "empty", missing, 0)
    counts = Counter(category_text(value, not_missing) or "" for value in present)
    top = tuple((text[:SHOWN], count) for text, count in counts.most_common(TOP))
    if any(isinstance(value, date | datetime | time | timedelta) for value in present):
        return InferredColumn(name, "date", missing, len(counts), top, orders=_orders(present))
    if len(counts) > FEW and all(map(_COMPACT.fullmatch, counts)) and (orders := _orders(present)):
        return InferredColumn(name, "date", missing, len(counts), top, orders=orders)
    numbers = _numbers(present, counts)
    most = most_categories(len(present), limits)
    column_kind = _column_kind(name, present, counts, numbers, most)
    padded = numbers is not None and column_kind in ("number", "code") and first_padded(present)
    if padded and len(counts) <= most:
        return InferredColumn(name, "category", missing, len(counts), top)
    if numbers is None:
        orders = _orders(present) if column_kind == "date" else ()
        flaw = ""
        if column_kind == "text":
            flaw = _flaw(counts) or (_MANY if 2 * len(counts) <= len(present) else "")
        return InferredColumn(name, column_kind, missing, len(counts), top, orders=orders, flaw=flaw)
    low, high = min(numbers), max(numbers)
    integral = all(value.is_integer() for value in numbers)
    bins = _histogram(numbers, low, high) if column_kind == "number" else ()
    large = integral and column_kind == "number" and max(-low, high) >= _EXACT
    flaw = _MERGED if large and _merge(numbers, len(counts)) else ""
    return InferredColumn(name, column_kind, missing, len(counts), top, low, high, integral, bins, flaw=flaw)


def _orders(present: Sequence[Any]) -> tuple[DateOrder, ...]:
    return fitting_orders({str(value) for value in present})


def _column_kind(
    name: str, present: Sequence[Any], counts: Counter[str], numbers: Sequence[float] | None, most: int
) -> ColumnKind:
    distinct, rows = len(counts), len(present)
    if distinct == 1:
        return "constant"
    if numbers is None:
        if _share(present, DATE) >= _MOSTLY:
            return "date"
        if distinct == rows and rows > FEW and (_names_rows(name) or _share(present, _UUID) >= _MOSTLY):
            return "id"
        return "category" if distinct <= most else "text"
    if not all(value.is_integer() for value in numbers):
        return "number"
    if distinct == rows and rows > FEW and (_names_rows(name) or _counts_up(numbers)):
        return "id"
    return "code" if distinct <= FEW and rows >= _CODE_ROWS * distinct else "number"


def _numbers(present: Sequence[Any], counts: Counter[str]) -> list[float] | None:
    """Return the values as finite numbers, without those such as ``"NAN"``.

    None if a value is anything else, or all are booleans.
    """
    if set(counts) <= {"true", "false"}:
        return None
    try:
        if any("_" in text for text in counts):
            return None  # for Python, 1_000 is a number; in a CSV it is not
        numbers = [parsed for parsed in map(number, present) if not math.isnan(parsed)]
    except ValueError:
        return None
    return numbers if numbers and all(map(math.isfinite, numbers)) else None


def _flaw(counts: Counter[str]) -> str:
    """Return why texts are no numbers, as the message of the trainer's check says; empty if few are alike."""
    numbers = {text for text in counts if _NUMBER.fullmatch(text)}
    others = [text for text in counts if text not in numbers]
    if 2 * sum(counts[text] for text in numbers) > counts.total():
        return f"numbers, but also {', '.join(repr(text[:20]) for text in others[:3])}"
    if others and all(map(_QUANTITY.fullmatch, counts)):
        return f"numbers with units, such as {others[0][:20]!r}"
    if all(map(_NESTED.fullmatch, counts)):
        return "JSON lists or objects: write their values into columns of their own"
    return ""


_EXACT = 1 << 24
_MANY = "too many distinct values to be a category by default: name it in [columns] categorical to use it"
_MERGED = "integers too large to be distinct as 32-bit floating point numbers"


def _merge(numbers: Sequence[float], distinct: int) -> bool:
    """Return whether more than half of the distinct numbers coincide as float32: the trainer refuses them."""
    return 2 * len(set(array("f", numbers))) <= distinct


def _histogram(numbers: Sequence[float], low: float, high: float) -> tuple[int, ...]:
    width = (high - low) / BINS
    if not (width > 0 and math.isfinite(width)):
        return ()
    bins = [0] * BINS
    for value in numbers:
        bins[min(BINS - 1, int((value - low) / width))] += 1
    return tuple(bins)


def _names_rows(name: str) -> bool:
    return bool(_ID_NAME.search(name) or _CAMEL_ID.search(name))


def _counts_up(numbers: Sequence[float]) -> bool:
    """Return whether numbers count the rows: the first ones are those of rows that follow each other."""
    steps = [later - earlier for earlier, later in pairwise(numbers)]
    return all(step == 1 for step in steps[: FIRST - 1]) and all(step >= 1 for step in steps)


def _share(present: Sequence[Any], pattern: re.Pattern[str]) -> float:
    return sum(bool(pattern.fullmatch(str(value).strip())) for value in present) / len(present)


def _nested(dtype: str) -> bool:
    return dtype.startswith(("List", "Array", "Struct", "Binary", "Object"))


def _kind_of_type(dtype: str) -> ColumnKind:
    """Return the kind of a column by its type alone."""
    if _nested(dtype):
        return "unusable"
    if dtype.startswith(("Date", "Time", "Duration")):
        return "date"
    if dtype.startswith(("Int", "UInt", "Float", "Decimal")):
        return "number"
    return "category" if dtype.startswith(("Bool", "Cat", "Enum")) else "text"


TRIALS = 20

MODELS: dict[Task, str] = {"classification": "auto-classifier", "regression": "auto-regressor"}

LISTED = 200
"""A spec with more features lists the excluded columns instead."""

MOST_TEXT = 100_000
"""Largest number of characters of all listed names, well below the size limit of a spec."""

_RARE = 0.4
"""Accuracy is not the metric if the rarest class has less than this part of an even share."""

_USED = ("number", "code", "category")


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a spec says of a target; the metric is empty if the model's default is suitable."""

    task: Task
    model: str
    metric: str


def propose(target: InferredColumn) -> Proposal:
    """Return task, model and metric for a target.

    Text is classification. Integers are classes if there are two, or few that recur often.
    """
    two = target.whole and target.distinct == 2 and target.high is not None
    one_text = target.kind == "constant" and target.low is None
    is_text = one_text or target.kind in ("category", "code", "text")
    task: Task = "classification" if two or is_text else "regression"
    return Proposal(task, MODELS[task], _metric(target, task))


def draft_spec(
    columns: Sequence[InferredColumn], target: InferredColumn, file: str, data: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a spec as ``tomllib`` would read it, with ``data`` as ``[data]``.

    Raise ``DataError`` if no column is left as a feature.
    """
    others = [column for column in columns if column.name != target.name]
    order = _common_order(others, data)
    features = [
        column for column in others if (column.kind in _USED and not column.flaw) or order in column.orders
    ]
    if not features:
        reasons = ", ".join(f"{column.name} ({column.reason or column.kind})" for column in others[:20])
        hint = "a feature contains numbers, dates, or text with few distinct values"
        raise DataError(
            ValidationIssue("no column is left as a feature", hint=hint, file=file, found=reasons)
        )
    roles = _roles(features, others, target, order)
    if sum(len(names) for role in roles.values() for names in role) > MOST_TEXT:
        message = "a spec cannot list this many columns"
        raise DataError(ValidationIssue(message, hint="remove some", file=file))
    proposal = propose(target)
    document: dict[str, Any] = {"model": proposal.model, "n_trials": TRIALS, "columns": roles}
    if data:
        document["data"] = dict(data)
    if proposal.metric:
        document["search"] = {"metric": proposal.metric}
    return document


def _common_order(columns: Sequence[InferredColumn], data: Mapping[str, Any]) -> DateOrder:
    """Return the order in which most columns of dates can be read.

    If 1/2/2026 may be both, the day is first in files with decimal commas or semicolons, and dates with a
    point or a dash.
    """
    counts = Counter(order for column in columns for order in column.orders)
    slashes = any("/" in text for column in columns if column.orders for text, _ in column.top[:1])
    european = "decimal" in data or data.get("delimiter") == ";" or not slashes
    ranked: list[DateOrder] = ["year-first", "day-first", "month-first"]
    if not european:
        ranked = ["year-first", "month-first", "day-first"]
    return max(ranked, key=lambda order: counts[order])


def _roles(
    features: Sequence[InferredColumn],
    others: Sequence[InferredColumn],
    target: InferredColumn,
    order: DateOrder,
) -> dict[str, Any]:
    roles: dict[str, Any] = {"target": target.name}
    used = {column.name for column in features}
    unused = [column.name for column in others if column.name not in used]
    if len(features) <= LISTED or len(features) < len(unused):
        roles["features"] = [column.name for column in features]
    elif unused:
        roles["drop"] = unused
    if categories := [column.name for column in features if column.kind == "category"]:
        roles["categorical"] = categories
    if dates := [column.name for column in features if column.kind == "date"]:
        roles["dates"] = dates
        if order != "year-first":
            roles["date_order"] = order
    return roles


def _metric(target: InferredColumn, task: Task) -> str:
    """Return a metric for classes of very different sizes; empty if the default is suitable."""
    if task != "classification" or target.distinct != len(target.top):
        return ""
    counts = [count for _, count in target.top]
    uneven = counts and min(counts) < _RARE * sum(counts) / len(counts)
    return "balanced_accuracy" if uneven else ""
