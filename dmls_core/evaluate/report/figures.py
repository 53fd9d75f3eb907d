"""A figure of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dmls_core.html.formats import shorten

_LABEL_LENGTH = 120
"""Characters of a name in a figure; its axes shorten names further."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart below its title and a text that says how to read it.

    Attributes:
        chart: name of a builder in ``html/static/charts.js``.
        values: what that builder draws, as JSON.
        height: in pixels.
        wide: scrolls sideways on a narrow screen instead of shrinking.
    """

    title: str
    text: str
    chart: str
    values: Mapping[str, Any]
    height: int = 320
    wide: bool = False


def bar_figure(
    title: str,
    text: str,
    values: Mapping[str, float],
    axis: str,
    *,
    spread: Sequence[float] = (),
    percentages: bool = False,
) -> Figure:
    """Return horizontal bars, the first one on top; ``spread``: half the length of each whisker."""
    bars = {
        "names": list(map(label, values)),
        "values": [float(f"{value:.5g}") for value in values.values()],
        "spread": [float(f"{half:.4g}") for half in spread],
        "x_name": axis,
        "percentages": percentages,
    }
    return Figure(title, text, "bars", bars, height=84 + 24 * len(values))


def label(text: object) -> str:
    """Return a text as a figure's tooltips show it."""
    return shorten(text, _LABEL_LENGTH)
