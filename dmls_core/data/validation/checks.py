"""Check expectations against the facts of the data, with the results that Great Expectations would have."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from dmls_core.data.encoder import MISSING, category_text
from dmls_core.data.validation.expectations import Expectation, ExpectationType
from dmls_core.data.validation.facts import ColumnFacts, TableFacts

_SHOWN = 5
"""Unexpected values in a message."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of an expectation.

    Attributes:
        observed: a count, or None if the expectation is about single values.
        checked: values that were checked, missing ones included.
        unexpected: number of values that do not meet it.
        examples: the first distinct ones of them; texts of missing values that may be values.
    """

    success: bool
    observed: int | None = None
    checked: int = 0
    unexpected: int = 0
    examples: tuple[Any, ...] = ()

    def describe(self, expectation_type: ExpectationType) -> str:
        """Describe what was observed."""
        if expectation_type == "exists":
            return "it exists" if self.success else "it does not exist"
        if expectation_type == "numbers" and self.success:
            return "all are numbers"
        if self.observed is not None:
            return f"there are {self.observed:,}"
        if expectation_type == "missing":
            texts = " or ".join(map(repr, self.examples))
            unless = f", unless [data] not_missing says that {texts} is a value" if texts else ""
            return f"{self.unexpected:,} of {self.checked:,} are missing{unless}"
        if not self.unexpected:
            return f"all {self.checked:,} values meet it"
        shown = ", ".join(str(value)[:40] for value in self.examples)
        return f"{self.unexpected:,} of {self.checked:,} values do not meet it" + (
            f", such as {shown}" if shown else ""
        )


def check(expectation: Expectation, table: TableFacts) -> CheckResult:
    """Check one expectation of the table."""
    arguments = expectation.arguments
    if expectation.expectation_type == "row_count":
        return _within(table.rows, arguments)
    facts = table.columns.get(expectation.column)
    if facts is None or expectation.expectation_type == "exists":
        return CheckResult(facts is not None)
    match expectation.expectation_type:
        case "missing":
            met = not table.rows or (table.rows - facts.missing) / table.rows >= arguments["mostly"]
            return CheckResult(
                met,
                checked=table.rows,
                unexpected=facts.missing,
                examples=() if met else facts.missing_texts,
            )
        case "unique_count":
            return _within(_values(facts).drop_nulls().n_unique(), arguments)
        case "numbers":
            examples: tuple[str, ...] = ()
            if facts.texts and facts.values is not None and facts.values.dtype == pl.String:
                texts = facts.values.drop_nulls()
                examples = _first(texts.filter(texts.cast(pl.Float64, strict=False).is_null()))
            return CheckResult(not facts.texts, None, table.rows, facts.texts, examples)
    values = _values(facts).drop_nulls()
    unexpected = values.filter(_unexpected(expectation, values))
    return CheckResult(unexpected.is_empty(), None, table.rows, len(unexpected), _first(unexpected))


def _values(facts: ColumnFacts) -> pl.Series:
    if facts.values is None:
        raise ValueError("the column's values were not read")
    return facts.values


def _first(values: pl.Series) -> tuple[Any, ...]:
    return tuple(values.unique(maintain_order=True).head(_SHOWN).to_list())


def _within(observed: int, arguments: dict[str, Any]) -> CheckResult:
    least, most = arguments["min_value"], arguments.get("max_value")
    return CheckResult(observed >= least and (most is None or observed <= most), observed)


def _unexpected(expectation: Expectation, values: pl.Series) -> pl.Series:
    """Return which values do not meet an expectation of single values."""
    arguments = expectation.arguments
    match expectation.expectation_type:
        case "between":
            low, high = arguments["min_value"], arguments["max_value"]
            outside = pl.repeat(False, len(values), dtype=pl.Boolean, eager=True)
            if low is not None:
                outside |= values < low
            return outside if high is None else outside | (values > high)
        case "in_set":
            return ~values.is_in(_spelled(arguments["value_set"], values).implode())
        case "pattern":
            pattern = re.compile(arguments["regex"])
            distinct = values.unique()
            return ~values.is_in([text for text in distinct.to_list() if pattern.search(text)])
        case _:
            return values.is_duplicated()


def _spelled(allowed: Sequence[Any], values: pl.Series) -> pl.Series:
    """Return the allowed values as spelled in the data: 1 also allows the text 1.0, as in a category."""
    if values.dtype.is_numeric():
        numbers = [value for value in allowed if not isinstance(value, str)]
        if values.dtype.is_integer():
            numbers = [int(value) for value in numbers if value == int(value)]
        return pl.Series(numbers, dtype=values.dtype, strict=False)
    texts = {category_text(value, MISSING) for value in allowed}
    spelled = [text for text in values.unique().to_list() if category_text(text, MISSING) in texts]
    return pl.Series(spelled, dtype=pl.String)
