"""Run expectations with Great Expectations, describe the results, and write the Data Docs page.

The page of Great Expectations loads styles, scripts and images from several servers, and contains texts of
the data as HTML. So texts are escaped first, and only tags and attributes that cannot load or run anything
are kept, with a small style sheet.
"""

from __future__ import annotations

import os
from html import escape
from html.parser import HTMLParser
from pathlib import Path

os.environ["GX_ANALYTICS_ENABLED"] = "false"  # read at import: nothing is sent anywhere

import great_expectations as gx
import pandas as pd
from great_expectations.core import ExpectationSuiteValidationResult, ExpectationValidationResult
from great_expectations.data_context.types.base import ProgressBarsConfig
from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
from great_expectations.render.renderer.page_renderer import ValidationResultsPageRenderer
from great_expectations.render.view.view import DefaultJinjaPageView

from dmls_core.data.validation import Outcome
from dmls_core.data.validation.expectations import Expectation, Kind

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


_KEPT = frozenset(
    {"a", "b", "br", "code", "div", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "i", "li", "nav", "ol"}
    | {"p", "pre", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"}
)
_WITHOUT_CONTENT = frozenset(["head", "script", "style", "title"])
_ATTRIBUTES = frozenset(["class", "colspan", "id", "rowspan"])

_HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Validation</title>
<style>
body { font: 15px/1.45 system-ui, sans-serif; margin: 0; color: #1f2328; background: #fff }
.container-fluid { padding: 0 1rem }
.container-fluid > .row { display: flex; gap: 2rem }
.container-fluid > .row > .col-lg-2 { flex: 0 0 14rem }
.container-fluid > .row > .col-md-10 { flex: 1; min-width: 0 }
.navbar.sticky-top, .btn-group, .sticky > .card:first-of-type { display: none }
.ge-section { border-top: 1px solid #d0d7de; padding: .75rem 0 }
.alert { background: #f6f8fa; padding: .5rem .75rem }
.card { border: 1px solid #d0d7de; border-radius: 6px; padding: .5rem; margin: .5rem 0 }
ul { list-style: none; padding: 0 } h4, h5, h6 { margin: .25rem 0 }
table { border-collapse: collapse; width: 100% }
th, td { border-bottom: 1px solid #d0d7de; padding: .3rem .5rem; text-align: left; vertical-align: top }
.badge { background: #eaeef2; border-radius: 4px; padding: 0 .3rem }
.text-success::before { content: "\\2713"; color: #1a7f37 }
.text-danger::before { content: "\\2717"; color: #cf222e }
.popover, .cooltip .top, .modal { display: none }
</style>
</head>
<body>
"""


class _Page(HTMLParser):
    """Keeps the harmless parts of a page's body."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[str] = []
        self._left_out = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._left_out += tag in _WITHOUT_CONTENT
        if tag in _KEPT and not self._left_out:
            kept = [
                f' {name}="{escape(value or "")}"'
                for name, value in attrs
                if name in _ATTRIBUTES or (name == "href" and (value or "").startswith("#"))
            ]
            self.kept.append(f"<{tag}{''.join(kept)}>")

    def handle_endtag(self, tag: str) -> None:
        if tag in _WITHOUT_CONTENT:
            self._left_out = max(0, self._left_out - 1)
        elif tag in _KEPT and not self._left_out:
            self.kept.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        if not self._left_out and data.strip():
            self.kept.append(escape(data, quote=False))


def write_docs(result: ExpectationSuiteValidationResult, folder: Path) -> None:
    """Write ``index.html``; the texts of ``result`` are escaped in place."""
    for found in result.results:
        found.result = {key: _escaped(value) for key, value in found.result.items()}
        if config := found.expectation_config:
            config.kwargs = {key: _escaped(value) for key, value in config.kwargs.items()}
    page = _Page()
    page.feed(DefaultJinjaPageView().render(ValidationResultsPageRenderer().render(result)))  # type: ignore[no-untyped-call]
    page.close()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "index.html").write_text(_HEAD + "".join(page.kept) + "\n</body>\n</html>\n", encoding="utf-8")


def _escaped(value: object) -> object:
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, dict):
        return {key: _escaped(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_escaped(item) for item in value]
    return value
