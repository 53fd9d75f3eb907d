"""Write the Data Docs page: Great Expectations renders the results of the checks.

The page of Great Expectations loads styles, scripts and images from several servers, and contains texts of
the data as HTML. So texts are escaped first, and only tags and attributes that cannot load or run anything
are kept, with a small style sheet. Rendering takes milliseconds per expectation: of a wide table, the page
shows the columns that matter.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any

from dmls_core.data.validation.checks import CheckResult
from dmls_core.data.validation.expectations import TYPES, Expectation

os.environ["GX_ANALYTICS_ENABLED"] = "false"  # read at import: nothing is sent anywhere

_UNUSED: dict[str, ModuleType | None] = {
    "boto3": None,
    "botocore": None,
    "rfc3987_syntax": None,
    "sqlalchemy": None,
    "altair": ModuleType("altair"),
    "scipy.stats": ModuleType("scipy.stats"),
}
"""Packages that Great Expectations imports for data sources, JSON schemas and distributions, which are not
used here: two thirds of its import. The last two have to be there, but nothing in them; others are optional.
jsonschema would use ``rfc3987_syntax``, which builds a grammar at its import."""

_hidden = {name: module for name, module in _UNUSED.items() if name not in sys.modules}
sys.modules.update(_hidden)  # type: ignore[arg-type]  # None hides a module
try:
    import great_expectations as gx
    from great_expectations.core import ExpectationSuiteValidationResult, ExpectationValidationResult
    from great_expectations.core.run_identifier import RunIdentifier
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
    from great_expectations.render.renderer.page_renderer import ValidationResultsPageRenderer
    from great_expectations.render.view.view import DefaultJinjaPageView
finally:
    for _name in _hidden:
        del sys.modules[_name]

_MAX_COLUMNS = 100
"""Columns on the page."""

Results = Sequence[tuple[Expectation, CheckResult]]


def write_docs(results: Results, named_columns: Collection[str], folder: Path) -> None:
    """Write ``index.html``; failing columns, then ``named_columns``, come first if not all fit."""
    columns = dict.fromkeys(expectation.column for expectation, _ in results if expectation.column)
    failed = dict.fromkeys(expectation.column for expectation, result in results if not result.success)
    first = dict.fromkeys(name for name in (*failed, *named_columns, *columns) if name in columns)
    shown = frozenset(list(first)[:_MAX_COLUMNS])
    checks = [
        _result(expectation, result)
        for expectation, result in results
        if not expectation.column or expectation.column in shown
    ]
    page = _Page()
    document = ValidationResultsPageRenderer().render(_suite(results, checks))
    page.feed(DefaultJinjaPageView().render(document))  # type: ignore[no-untyped-call]
    page.close()
    note = _note(len(columns), len(shown), len(failed.keys() - shown - {""}))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "index.html").write_text(
        f"{_HEAD}{note}{''.join(page.parts)}\n</body>\n</html>\n", encoding="utf-8"
    )


def _note(columns: int, shown: int, failed: int) -> str:
    """Return a paragraph on the columns that are not shown; empty if all are."""
    if columns == shown:
        return ""
    rest = f"{failed:,} of the others fail too" if failed else "all others meet their expectations"
    return (
        f'<p class="note">This page shows {shown:,} of {columns:,} columns, those that fail first; {rest}. '
        "<code>validation.json</code> has every result.</p>"
    )


def _suite(results: Results, shown: list[ExpectationValidationResult]) -> ExpectationSuiteValidationResult:
    met = sum(result.success for _, result in results)
    return ExpectationSuiteValidationResult(
        success=met == len(results),
        results=shown,
        suite_name="spec",
        statistics={
            "evaluated_expectations": len(results),
            "successful_expectations": met,
            "unsuccessful_expectations": len(results) - met,
            "success_percent": 100 * met / len(results),
        },
        meta={
            "great_expectations_version": gx.__version__,
            "run_id": RunIdentifier(run_time=datetime.now(UTC)),
        },
    )


def _result(expectation: Expectation, result: CheckResult) -> ExpectationValidationResult:
    """Return the result as Great Expectations has it, with escaped texts."""
    column = {"column": escape(expectation.column)} if expectation.column else {}
    return ExpectationValidationResult(
        success=result.success,
        expectation_config=ExpectationConfiguration(
            type=TYPES[expectation.expectation_type], kwargs=column | _escaped(expectation.arguments)
        ),
        result=_escaped(_details(expectation, result)),
    )


def _details(expectation: Expectation, result: CheckResult) -> dict[str, Any]:
    if expectation.expectation_type == "exists":
        return {}
    if expectation.expectation_type == "numbers" and result.success:
        return {"observed_value": "float"}
    if result.observed is not None:
        return {"observed_value": result.observed}
    share = 100 * result.unexpected / result.checked if result.checked else 0.0
    return {
        "element_count": result.checked,
        "unexpected_count": result.unexpected,
        "unexpected_percent": share,
        "unexpected_percent_total": share,
        "partial_unexpected_list": list(result.examples),
    }


_ALLOWED_TAGS = frozenset(
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
.note { margin: 1rem }
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
        self.parts: list[str] = []
        self._left_out = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._left_out += tag in _WITHOUT_CONTENT
        if tag in _ALLOWED_TAGS and not self._left_out:
            attributes = [
                f' {name}="{escape(value or "")}"'
                for name, value in attrs
                if name in _ATTRIBUTES or (name == "href" and (value or "").startswith("#"))
            ]
            self.parts.append(f"<{tag}{''.join(attributes)}>")

    def handle_endtag(self, tag: str) -> None:
        if tag in _WITHOUT_CONTENT:
            self._left_out = max(0, self._left_out - 1)
        elif tag in _ALLOWED_TAGS and not self._left_out:
            self.parts.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        if not self._left_out and data.strip():
            self.parts.append(escape(data, quote=False))


def _escaped(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, dict):
        return {key: _escaped(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_escaped(item) for item in value]
    return value
