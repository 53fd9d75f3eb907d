"""The part of the page about the champion: both models on the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dmls_core.evaluate.report.figures import Figures, Trace
from dmls_core.evaluate.report.parts import paragraph, table


def render(figures: Figures, comparison: Mapping[str, Any]) -> str:
    """Return the HTML of the section.

    Args:
        figures: takes the plot.
        comparison: ``comparison`` of ``result.json``.
    """
    version, reason = comparison["champion_version"], comparison["reason"]
    if not comparison["comparable"]:
        return paragraph(f"The champion is version {version}. {reason[:1].upper()}{reason[1:]}.", "")
    metric, margin = comparison["metric"], comparison["min_improvement"]
    low, high = comparison["interval"]
    rows = [
        [f"champion, version {version}: {metric}", comparison["champion_score"]],
        [f"this model: {metric}", comparison["challenger_score"]],
        ["improvement", comparison["difference"]],
        ["95 % interval, from", low],
        ["to", high],
        [f"probability of an improvement of more than {margin:g}", comparison["probability"]],
        ["rows", comparison["rows"]],
    ]
    verdict = "It may take the champion's place" if comparison["better"] else "The champion stays"
    told = (
        paragraph(f"{reason[:1].upper()}{reason[1:]}.", "")
        + paragraph(f'{verdict} by the rule of [deploy] mode = "auto". {comparison["note"]}', "")
        + table(["", "value"], rows)
    )
    return f'<div class="columns"><div>{told}</div><div>{_plot(figures, comparison)}</div></div>'


def _plot(figures: Figures, comparison: Mapping[str, Any]) -> str:
    low, high = comparison["interval"]
    found, margin = comparison["difference"], comparison["min_improvement"]
    point: Trace = {
        "type": "scatter",
        "mode": "markers",
        "x": [found],
        "y": [0],
        "marker": {"color": "@accent", "size": 10},
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [max(0.0, high - found)],
            "arrayminus": [max(0.0, found - low)],
            "thickness": 2,
        },
        "hovertemplate": "%{x:.4g}<extra></extra>",
    }
    line: Trace = {
        "type": "scatter",
        "mode": "lines",
        "x": [margin, margin],
        "y": [-1, 1],
        "line": {"dash": "dot"},
        "hovertemplate": f"asked for: {margin:g}<extra></extra>",
    }
    return figures.add(
        "Improvement over the champion",
        "The point is the difference on the common rows, the bar its 95 % interval (paired bootstrap). Right "
        "of the dotted line lies what [deploy] min_improvement asks for.",
        [line, point],
        {
            "xaxis": {"title": {"text": f"improvement of {comparison['metric']}"}},
            "yaxis": {"visible": False, "range": [-1, 1], "fixedrange": True},
        },
        height=200,
    )
