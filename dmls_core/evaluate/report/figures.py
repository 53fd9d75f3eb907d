"""Figures of the page: what Plotly draws, as JSON, and where it stands."""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from typing import Any

from dmls_core.evaluate.report.parts import cut
from dmls_core.html import template_source

LABEL = 28
"""Characters of a name within a figure."""

HOVER = 120
"""Characters of a name that is shown when a bar is pointed at: cut shorter, two names may look the same."""

Trace = dict[str, Any]
"""A trace of Plotly. A colour ``"@accent"`` is the style sheet's, so that it fits a light and a dark page."""

COLOURS = ("#4c8dd8", "#e08a3c", "#46a97a", "#c56ab4", "#c9544b", "#8f7ee0", "#b0a03a", "#4fb3bf", "#9a7b63",
           "#7f8c9a")  # fmt: skip
"""Colours of classes; they can be told apart on a light and on a dark page."""


def label(text: object) -> str:
    """Return a text as Plotly shows it literally: it reads some of HTML, links among it."""
    return escape(cut(text, LABEL), quote=False)


class Figures:
    """Collects the figures of one page."""

    def __init__(self) -> None:
        self._figures: dict[str, dict[str, Any]] = {}

    def add(
        self,
        title: str,
        text: str,
        traces: Sequence[Trace],
        layout: Mapping[str, Any],
        *,
        height: int = 320,
        wide: bool = False,
    ) -> str:
        """Add a figure and return its HTML.

        Args:
            title: what it shows.
            text: how it is read.
            traces: Plotly's.
            layout: Plotly's; colours, fonts and margins are added.
            height: in pixels.
            wide: whether it is to be scrolled sideways on a narrow screen, not squeezed.
        """
        name = f"figure-{len(self._figures)}"
        self._figures[name] = {
            "data": list(traces),
            "layout": {
                "height": height,
                "margin": {"l": 48, "r": 12, "t": 12, "b": 40},
                "showlegend": False,
                "hovermode": "closest",
                "dragmode": False,
                **layout,
            },
        }
        caption = f"<figcaption><b>{escape(title)}</b>{escape(text)}</figcaption>"
        told = f'id="{name}" role="img" aria-label="{escape(title)}"'
        plot = f'<div class="plot" {told} style="height:{height}px"></div>'
        kind = ' class="scroll wide"' if wide else ' class="scroll"'
        return f"<figure>{caption}<div{kind}>{plot}</div></figure>"

    def scripts(self) -> tuple[str, list[str]]:
        """Return the scripts that draw the figures, and the hashes by which a policy allows them."""
        if not self._figures:
            return "", []
        drawing = template_source("report.js")
        data = json.dumps(self._figures, separators=(",", ":"), allow_nan=False)
        # Within a script element only "<" could end it or begin a comment.
        quiet = data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
        html = (
            f'<script type="application/json" id="figures">{quiet}</script>'
            f"<script>{_plotly()}</script><script>{drawing}</script>"
        )
        return html, [_hash(_plotly()), _hash(drawing)]


def bar_figure(
    figures: Figures,
    title: str,
    text: str,
    values: Mapping[str, float],
    axis: str,
    *,
    spread: Sequence[float] = (),
    tick_format: str = "",
) -> str:
    """Add a figure of horizontal bars, the first one on top, and return its HTML.

    Args:
        figures: takes it.
        title: what it shows.
        text: how it is read.
        values: name -> length of its bar.
        axis: what the length is.
        spread: half the length of each bar's whisker.
        tick_format: how Plotly writes the lengths.
    """
    places = list(range(len(values)))
    bar: Trace = {
        "type": "bar",
        "orientation": "h",
        "x": [float(f"{value:.5g}") for value in values.values()],
        "y": places,
        "text": [escape(cut(name, HOVER), quote=False) for name in values],
        "textposition": "none",
        "marker": {"color": "@accent"},
        "hovertemplate": "%{text}: %{x:.4g}<extra></extra>",
    }
    if spread:
        bar["error_x"] = {"array": [float(f"{x:.4g}") for x in spread], "color": "@muted", "thickness": 1}
    # Bars stand at numbers: of names that are cut two may look the same.
    names = {"tickvals": places, "ticktext": list(map(label, values)), "showgrid": False}
    layout = {
        "xaxis": {
            "title": {"text": label(axis)},
            "tickformat": tick_format,
            "rangemode": "tozero",
            "nticks": 6,
        },
        "yaxis": {**names, "range": [len(values) - 0.5, -0.5]},
        "bargap": 0.35,
    }
    return figures.add(title, text, [bar], layout, height=84 + 24 * len(values))


def style() -> str:
    """Return the page's style sheet."""
    return template_source("base.css") + template_source("report.css")


@cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    # A browser hashes a script after it has made every line end "\n".
    source: str = get_plotlyjs()
    return source.replace("\r\n", "\n").replace("\r", "\n")


def _hash(script: str) -> str:
    return "'sha256-" + b64encode(hashlib.sha256(script.encode()).digest()).decode() + "'"
