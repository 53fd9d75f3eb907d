"""Write the Data Docs page of a validation as one file that works without a network.

The page of Great Expectations loads styles, scripts and images from several servers, and contains texts of
the data as HTML. So texts are escaped first, and only tags and attributes that cannot load or run anything
are kept, with a small style sheet.
"""

from __future__ import annotations

from html import escape
from html.parser import HTMLParser
from pathlib import Path

from great_expectations.core import ExpectationSuiteValidationResult
from great_expectations.render.renderer.page_renderer import ValidationResultsPageRenderer
from great_expectations.render.view.view import DefaultJinjaPageView

_KEPT = frozenset(
    {
        "a",
        "b",
        "br",
        "code",
        "div",
        "em",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "hr",
        "i",
        "li",
        "nav",
        "ol",
        "p",
    }
    | {"pre", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"}
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
