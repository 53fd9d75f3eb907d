"""Run expectations with Great Expectations and describe the results in plain words."""

from __future__ import annotations

import os
from pathlib import Path

os.environ["GX_ANALYTICS_ENABLED"] = "false"  # read at import: nothing is sent anywhere

import great_expectations as gx
import pandas as pd
from great_expectations.core import ExpectationSuiteValidationResult, ExpectationValidationResult
from great_expectations.data_context.types.base import ProgressBarsConfig
from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

from dmls_core.data.validation.data_docs import write_docs
from dmls_core.data.validation.expectations import Expectation, Kind
from dmls_core.data.validation.process import Outcome

_TYPES: dict[Kind, str] = {
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
_SHOWN = 5
"""Unexpected values in a message."""


def run_suite(data: pd.DataFrame, expectations: list[Expectation], docs: Path) -> list[Outcome]:
    """Return the outcome of each expectation, in order, and write the Data Docs page to ``docs``."""
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    batch = (
        context.data_sources.add_pandas("submission")
        .add_dataframe_asset("data")
        .add_batch_definition_whole_dataframe("all rows")
    )
    suite = gx.ExpectationSuite("spec", expectations=list(map(_configuration, expectations)))
    definition = context.validation_definitions.add(
        gx.ValidationDefinition(name="spec", data=batch, suite=context.suites.add(suite))
    )
    result = definition.run(
        batch_parameters={"dataframe": data},
        result_format={"result_format": "SUMMARY", "partial_unexpected_count": _SHOWN},
    )
    outcomes = _outcomes(result, expectations)
    write_docs(result, docs)
    return outcomes


def _configuration(expectation: Expectation) -> ExpectationConfiguration:
    column = {"column": expectation.column} if expectation.column else {}
    return ExpectationConfiguration(type=_TYPES[expectation.kind], kwargs=column | expectation.arguments)


def _outcomes(result: ExpectationSuiteValidationResult, expectations: list[Expectation]) -> list[Outcome]:
    # Great Expectations returns the results in another order.
    by_key = {
        (config.kwargs.get("column", ""), config.type): found
        for found in result.results
        if (config := found.expectation_config)
    }
    outcomes = []
    for expectation in expectations:
        name = _TYPES[expectation.kind]
        found = by_key[expectation.column, name]
        observed = _observed(expectation.kind, found)
        subject = f"column {expectation.column!r}" if expectation.column else "the data"
        verdict = "as expected" if found.success else "but"
        outcomes.append(
            Outcome(
                expectation.column,
                name,
                bool(found.success),
                observed,
                expectation.statement,
                f"{subject}: {expectation.statement}, {verdict}: {observed}",
            )
        )
    return outcomes


def _observed(kind: Kind, found: ExpectationValidationResult) -> str:
    """Describe the observed value; each expectation has its own keys in the result."""
    result = found.result
    if kind == "exists":
        return "it exists" if found.success else "it does not exist"
    if kind in ("row_count", "unique_count") and "observed_value" in result:
        return f"there are {result['observed_value']:,}"
    if kind == "numbers" and "observed_value" in result:
        return "all are numbers" if found.success else "it contains text"
    if "unexpected_count" not in result:
        return "it could not be checked: " + str(found.exception_info)[:500]
    count, of = result["unexpected_count"], result["element_count"]
    if kind == "missing":
        return f"{count:,} of {of:,} are missing"
    if not count:
        return f"all {of:,} values meet it"
    values = ", ".join(str(value)[:40] for value in result["partial_unexpected_list"])
    return f"{count:,} of {of:,} values do not meet it, such as {values}"
