"""Plan the expectations of the data.

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

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from dmls_core.data.validation.facts import ColumnFacts, TableFacts
from dmls_core.spec import ColumnExpectation, Expectations, Spec

ExpectationType = Literal[
    "row_count", "exists", "numbers", "missing", "between", "in_set", "pattern", "unique", "unique_count"
]

TYPES: dict[ExpectationType, str] = {
    "row_count": "expect_table_row_count_to_be_between",
    "exists": "expect_column_to_exist",
    "numbers": "expect_column_values_to_be_in_type_list",
    "missing": "expect_column_values_to_not_be_null",
    "between": "expect_column_values_to_be_between",
    "in_set": "expect_column_values_to_be_in_set",
    "pattern": "expect_column_values_to_match_regex",
    "unique": "expect_column_values_to_be_unique",
    "unique_count": "expect_column_unique_value_count_to_be_between",
}
"""The names in Great Expectations."""

_FEATURE_MISSING = 0.95
_TARGET_MISSING = 0.5

_FLOATS = ["float", "float32", "float64"]


@dataclass(frozen=True, slots=True)
class Expectation:
    """One expectation, as a statement in plain words; a column has at most one of each kind.

    ``column`` is empty for the table as a whole. ``arguments`` are those of Great Expectations except the
    column.
    """

    column: str
    expectation_type: ExpectationType
    statement: str
    arguments: dict[str, Any] = field(default_factory=dict)


def plan_expectations(spec: Spec, table: TableFacts) -> list[Expectation]:
    """Return all expectations of the spec and the table's columns."""
    declared = spec.expectations
    expectations: list[Expectation] = [
        _row_count(declared),
        *(Expectation(name, "exists", "the column exists") for name in (*table.columns, *table.absent)),
    ]
    features = frozenset(table.roles.features if table.roles else ())
    categorical = frozenset(spec.columns.categorical)
    for name, facts in table.columns.items():
        column = declared.columns.get(name) or ColumnExpectation()
        is_feature = name in features
        is_target = name == spec.columns.target
        if (
            (is_feature and facts.numeric and name not in categorical)
            or (is_target and spec.task == "regression")
            or column.min is not None
            or column.max is not None
        ):
            expectations.append(
                Expectation(name, "numbers", "every value is a number", {"type_list": _FLOATS})
            )
        if is_feature or is_target or column.max_missing is not None:
            expectations.append(_missing(name, spec, column))
        if is_target:
            statement = "there are at least 2 different values"
            expectations.append(Expectation(name, "unique_count", statement, {"min_value": 2}))
        expectations += _column_expectations(name, column, facts)
    return expectations


def _row_count(declared: Expectations) -> Expectation:
    least = declared.min_rows or 1
    most = declared.max_rows
    return Expectation(
        "",
        "row_count",
        f"there {'is' if least == 1 else 'are'} at least {least:,} row{'s' * (least > 1)}"
        + (f" and at most {most:,}" if most else ""),
        {"min_value": least, "max_value": most},
    )


def _missing(name: str, spec: Spec, column: ColumnExpectation) -> Expectation:
    default = _TARGET_MISSING if name == spec.columns.target else _FEATURE_MISSING
    shares = (column.max_missing, spec.expectations.max_missing, default)
    share = next(share for share in shares if share is not None)
    statement = f"at most {100 * share:g} % of the values are missing" if share else "no value is missing"
    return Expectation(name, "missing", statement, {"mostly": 1 - share})


def _column_expectations(name: str, column: ColumnExpectation, facts: ColumnFacts) -> Iterator[Expectation]:
    bounds = [f"at least {column.min}"] if column.min is not None else []
    bounds += [f"at most {column.max}"] if column.max is not None else []
    if bounds and facts.numeric and not facts.texts:  # texts already fail the expectation of numbers
        arguments = {"min_value": column.min, "max_value": column.max}
        yield Expectation(name, "between", f"every value is {' and '.join(bounds)}", arguments)
    if column.values is not None:
        shown = ", ".join(map(str, column.values[:20])) + (", …" if len(column.values) > 20 else "")
        yield Expectation(
            name, "in_set", f"every value is one of {shown}", {"value_set": list(column.values)}
        )
    if column.pattern is not None:
        yield Expectation(name, "pattern", f"every value matches {column.pattern}", {"regex": column.pattern})
    if column.unique:
        yield Expectation(name, "unique", "no value occurs twice")
