"""Figures of the report: Plotly's data as JSON, and the scales of hyperparameters."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from typing import Any

from dmls_core.html import template_source
from dmls_core.html.formats import brief, shorten
from dmls_core.spec.definitions import Scalar

LABEL_LENGTH = 28
"""Characters of a name within a figure."""

HOVER_LENGTH = 120
"""Characters of a name in a hover label: shortened further, two names may look the same."""

MAX_NUMBER_TICKS = 6
"""Distinct numbers up to which each has a tick."""

MAX_TICKS = 12
"""Ticks of a text axis at most."""

Trace = dict[str, Any]
"""A trace of Plotly. The color ``"@accent"`` is the style sheet's, for light and dark pages."""

COLORS = ("#4c8dd8", "#e08a3c", "#46a97a", "#c56ab4", "#c9544b", "#8f7ee0", "#b0a03a", "#4fb3bf", "#9a7b63",
          "#7f8c9a")  # fmt: skip
"""Colors of classes, distinguishable on a light and on a dark page."""


def label(text: object) -> str:
    """Return a text that Plotly shows literally: it interprets some HTML, including links."""
    return escape(shorten(text, LABEL_LENGTH), quote=False)


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure's place on the page, ``height`` pixels high; ``text`` says how to read it.

    A ``wide`` figure scrolls sideways on a narrow screen instead of shrinking.
    """

    id: str
    title: str
    text: str
    height: int
    wide: bool


class Figures:
    """Collects the figures of one page."""

    def __init__(self) -> None:
        self._data: dict[str, dict[str, Any]] = {}

    def add(
        self,
        title: str,
        text: str,
        traces: Sequence[Trace],
        layout: Mapping[str, Any],
        *,
        height: int = 320,
        wide: bool = False,
    ) -> Figure:
        """Add a figure to the page, and complete Plotly's layout with colors, fonts and margins."""
        figure = Figure(f"figure-{len(self._data)}", title, text, height, wide)
        self._data[figure.id] = {
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
        return figure

    def as_json(self) -> str:
        """Return the figures' data as JSON that is safe in a script element; empty without figures."""
        if not self._data:
            return ""
        data = json.dumps(self._data, separators=(",", ":"), allow_nan=False)
        # Only "<" could end the script element or begin a comment.
        return data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")

    def scripts(self) -> list[str]:
        """Return the scripts that draw the figures."""
        return [_plotly(), template_source("report.js")] if self._data else []


def bar_figure(
    figures: Figures,
    title: str,
    text: str,
    values: Mapping[str, float],
    axis: str,
    *,
    spread: Sequence[float] = (),
    tick_format: str = "",
) -> Figure:
    """Add a figure of horizontal bars, the first one on top; ``spread``: half the length of each whisker."""
    places = list(range(len(values)))
    bar: Trace = {
        "type": "bar",
        "orientation": "h",
        "x": [float(f"{value:.5g}") for value in values.values()],
        "y": places,
        "text": [escape(shorten(name, HOVER_LENGTH), quote=False) for name in values],
        "textposition": "none",
        "marker": {"color": "@accent"},
        "hovertemplate": "%{text}: %{x:.4g}<extra></extra>",
    }
    if spread:
        bar["error_x"] = {"array": [float(f"{x:.4g}") for x in spread], "color": "@muted", "thickness": 1}
    # Bars are placed by number: two names may be equal once they are shortened.
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


def _sort_key(value: Scalar) -> tuple[int, float, str]:
    return (0, float(value), "") if isinstance(value, int | float) else (1, 0.0, str(value))


def setting_text(value: object) -> str:
    """Return a setting as text."""
    return brief(value) if isinstance(value, float) else str(value)


class Scale:
    """Maps a hyperparameter's values to positions between 0 and 1 on an axis.

    The axis is numeric if all values are numbers, and logarithmic with ``log`` if they are also positive.
    """

    def __init__(self, values: Sequence[Scalar], *, log: bool) -> None:
        numbers = [
            value for value in values if isinstance(value, int | float) and not isinstance(value, bool)
        ]
        self.numbers = sorted(set(numbers)) if len(numbers) == len(values) else []
        self.words = [] if self.numbers else list(dict.fromkeys(map(str, sorted(values, key=_sort_key))))
        self.log = log and bool(self.numbers) and self.numbers[0] > 0

    def __call__(self, value: Scalar) -> float:
        """Return the position of a value."""
        if self.words:
            return round(self.words.index(str(value)) / max(1, len(self.words) - 1), 4)
        at, low, high = (
            math.log(float(number)) if self.log else float(number)
            for number in (value, self.numbers[0], self.numbers[-1])
        )
        return round((at - low) / (high - low), 4) if high > low else 0.5

    def ticks(self) -> list[tuple[float, str]]:
        """Return positions and labels: all of a few values, or the ends and the middle of many numbers."""
        if self.words:
            return [(self(word), word) for word in self.words[:MAX_TICKS]]
        shown = self.numbers if len(self.numbers) <= MAX_NUMBER_TICKS else self.ends()
        return [(self(number), setting_text(number)) for number in shown]

    def ends(self) -> list[float]:
        """Return up to three numbers: the ends and the middle."""
        if len(self.numbers) <= 3:
            return list(self.numbers)
        low, high = self.numbers[0], self.numbers[-1]
        middle = math.sqrt(low * high) if self.log else (low + high) / 2
        return [low, round(middle) if isinstance(low, int) else float(f"{middle:.3g}"), high]


@cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    source: str = get_plotlyjs()
    return source
