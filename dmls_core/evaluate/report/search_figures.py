"""Figures of the search: its history, what mattered in it, and the settings it tried."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dmls_core.evaluate.report.figures import Figures, Trace, bar_figure, label
from dmls_core.evaluate.report.parts import cut
from dmls_core.evaluate.report.scale import Scale, short

TrialData = Mapping[str, Any]
"""A trial's JSON."""

POINTS = 2_000
"""Trials that a figure shows at most."""

LINES = 250
"""Trials that are lines of the parallel coordinates at most."""

AXES = 10
"""Hyperparameters that the parallel coordinates and the slices show at most."""

SHADES = ("#46327e", "#365c8d", "#277f8e", "#1fa187", "#4ac16d", "#c9cf2f")
"""From the worst trials to the best."""


def history(figures: Figures, trials: Sequence[TrialData], metric: str, direction: str) -> str:
    """Draw the score of each trial and the best score so far."""
    scored = [trial for trial in trials if trial["value"] is not None]
    best: list[float] = []
    better = max if direction == "maximize" else min
    finished = [trial for trial in scored if trial.get("state") != "pruned"]
    for trial in finished:
        best.append(better(best[-1], trial["value"]) if best else trial["value"])
    every = max(1, math.ceil(len(finished) / POINTS))
    kept = [at for at in range(len(finished)) if at % every == 0 or (at and best[at] != best[at - 1])]
    pruned = [trial for trial in scored if trial.get("state") == "pruned"]
    pruned = pruned[:: max(1, math.ceil(len(pruned) / POINTS))]
    traces = [
        _dots("complete", [finished[at] for at in kept], {"color": "@accent", "size": 7, "opacity": 0.75})
    ]
    text = "In the order in which they were suggested"
    if len(finished) > 1:
        line = {"shape": "hv", "color": "@second", "width": 2}
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": "best so far",
                "x": [finished[at]["number"] for at in kept],
                "y": [best[at] for at in kept],
                "line": line,
                "hoverinfo": "skip",
            }
        )
        text += "; the line is the best so far"
    if pruned:
        style = {"color": "@muted", "size": 6, "symbol": "circle-open"}
        traces.insert(0, _dots("pruned", pruned, style))
    return figures.add(
        "Score of each trial",
        f"{text}.",
        traces,
        {
            "xaxis": {"title": {"text": "trial"}, "tickformat": "d", "nticks": min(12, len(scored) + 1)},
            "yaxis": _scores(metric, scored),
            "showlegend": True,
            "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        },
    )


def _scores(metric: str, trials: Sequence[TrialData]) -> dict[str, Any]:
    """Return the axis of the scores; where all are the same, Plotly's own would begin at 0."""
    values = [trial["value"] for trial in trials]
    axis: dict[str, Any] = {"title": {"text": label(metric)}, "nticks": 6}
    if min(values) == max(values):
        room = abs(values[0]) * 0.05 or 1
        axis["range"] = [values[0] - room, values[0] + room]
    return axis


def _dots(name: str, trials: Sequence[TrialData], marker: Mapping[str, Any]) -> Trace:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [trial["number"] for trial in trials],
        "y": [trial["value"] for trial in trials],
        "text": [_settings(trial) for trial in trials],
        "marker": dict(marker),
        "hovertemplate": "trial %{x}: %{y:.5g}<br>%{text}<extra></extra>",
    }


def _settings(trial: TrialData) -> str:
    shown = list(trial["params"].items())[:6]
    return "<br>".join(f"{label(name)} {label(short(value))}" for name, value in shown)


def parallel(
    figures: Figures,
    trials: Sequence[TrialData],
    names: Sequence[str],
    logs: frozenset[str],
    metric: str,
    direction: str,
    *,
    note: str = "",
) -> str:
    """Draw each trial as a line across its settings to its score, the better the brighter.

    Lines of a shade are one trace with gaps: Plotly's own parallel coordinates need a script that compiles
    scripts, which the page's policy forbids.
    """
    names = names[:AXES]
    ordered = sorted(trials, key=lambda trial: trial["value"], reverse=direction != "maximize")
    # All of the best are shown, and a sample of the rest.
    rest = ordered[: -LINES // 2]
    if len(ordered) > LINES:
        ordered = rest[:: math.ceil(len(rest) / (LINES // 2))] + ordered[-LINES // 2 :]
    scales = {name: Scale([trial["params"][name] for trial in ordered], log=name in logs) for name in names}
    score = Scale([trial["value"] for trial in ordered], log=False)
    traces: list[Trace] = []
    for shade, colour in enumerate(SHADES):
        first, last = (len(ordered) * edge // len(SHADES) for edge in (shade, shade + 1))
        x: list[float | None] = []
        y: list[float | None] = []
        for trial in ordered[first:last]:
            x += [*range(len(names) + 1), None]
            y += [*(scales[name](trial["params"][name]) for name in names), score(trial["value"]), None]
        if x:
            line = {"color": colour, "width": 2 if shade == len(SHADES) - 1 else 1}
            traces.append(_line(x, y, line, 0.35 + 0.1 * shade))
    for at, scale in enumerate([*scales.values(), score]):
        traces.append(_ticks(at, scale))
    return figures.add(
        "Settings and scores",
        f"Each line is a trial, from its settings to its {metric}; bright ones are the best."
        + (f" Trials are compared {note}." if note else ""),
        traces,
        {
            "xaxis": {
                "tickvals": list(range(len(names) + 1)),
                "ticktext": [*map(label, names), f"<b>{label(metric)}</b>"],
                "side": "top",
                "showgrid": False,
                "zeroline": False,
                "range": [-0.4, len(names) + 0.7],
                "fixedrange": True,
            },
            "yaxis": {"visible": False, "range": [-0.06, 1.06], "fixedrange": True},
            "margin": {"l": 40, "r": 12, "t": 40, "b": 12},
        },
        height=360,
        wide=len(names) > 3,
    )


def _line(x: list[float | None], y: list[float | None], line: Mapping[str, Any], opacity: float) -> Trace:
    return {
        "type": "scatter", "mode": "lines", "x": x, "y": y, "line": dict(line), "opacity": round(opacity, 2),
        "hoverinfo": "skip",
    }  # fmt: skip


def _ticks(at: int, scale: Scale) -> Trace:
    shown = scale.ticks()
    return {
        "type": "scatter",
        "mode": "lines+markers+text",
        "x": [at] * len(shown),
        "y": [place for place, _ in shown],
        "text": [f" {label(text)}" for _, text in shown],
        "textposition": "middle right",
        "line": {"color": "@muted", "width": 1},
        "marker": {"color": "@muted", "size": 5},
        "hoverinfo": "skip",
    }


def slices(
    figures: Figures, trials: Sequence[TrialData], names: Sequence[str], logs: frozenset[str], metric: str
) -> str:
    """Draw, for each hyperparameter, the scores of the trials against its values."""
    drawn = trials[:: max(1, math.ceil(len(trials) / (POINTS // max(1, len(names)))))]
    html = ""
    for name in names[:AXES]:
        values = [trial["params"][name] for trial in drawn]
        scale = Scale(values, log=name in logs)
        axis: dict[str, Any] = {"type": "log" if scale.log else "linear"}
        if scale.numbers:
            ends = [f"{end:.3g}" if isinstance(end, float) else str(end) for end in scale.ends()]
            axis |= {"tickvals": scale.ends(), "ticktext": ends}
        if scale.words:
            values = [label(cut(value, 12)) for value in values]
            order = [label(cut(word, 12)) for word in scale.words]
            axis = {"type": "category", "tickangle": 0, "categoryorder": "array", "categoryarray": order}
        dots = {
            "type": "scatter",
            "mode": "markers",
            "x": values,
            "y": [trial["value"] for trial in drawn],
            "marker": {"color": "@accent", "size": 6, "opacity": 0.6},
            "hovertemplate": "%{x}: %{y:.5g}<extra></extra>",
        }
        layout = {"xaxis": axis, "yaxis": _scores(metric, drawn)}
        html += figures.add(name, "", [dots], layout, height=200)
    return f'<div class="small">{html}</div>'


def importances(figures: Figures, shares: Mapping[str, float], note: str = "") -> str:
    """Draw how much each hyperparameter mattered; the note says on which terms trials are compared."""
    return bar_figure(
        figures,
        "What mattered in the search",
        "Share of the difference between the best trials and all that each hyperparameter explains "
        "(PED-ANOVA)." + (f" Trials are compared {note}." if note else ""),
        shares,
        "share",
        tick_format=".0%",
    )
