"""Figures of the search: history, importance of hyperparameters, configurations and their scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.evaluate.report.comparable_trials import LENGTH
from dmls_core.evaluate.report.figures import Figure, Figures, Scale, Trace, bar_figure, label, setting_text
from dmls_core.html.formats import shorten

TrialData = Mapping[str, Any]

MAX_POINTS = 2_000
"""Trials in a figure at most."""

MAX_LINES = 250
"""Trials in the parallel coordinates at most."""

MAX_AXES = 10
"""Hyperparameters in the parallel coordinates and the slices at most."""

MAX_LEVELS = 60
"""Values on an axis of the score map at most."""

SHADES = ("#46327e", "#365c8d", "#277f8e", "#1fa187", "#4ac16d", "#c9cf2f")
"""From the worst trials to the best."""

MAP_SHADES = ("#46327e", "#365c8d", "#277f8e", "#1fa187", "#c9cf2f")
"""From the worst scores to the best."""


def history(figures: Figures, trials: Sequence[TrialData], metric: str, direction: str) -> Figure:
    """Draw the score of each trial and the best score so far.

    The score of a pruned trial is not comparable: its dot is below the scores of the complete ones.
    """
    scored = [trial for trial in trials if trial["value"] is not None]
    best: list[float] = []
    better = max if direction == "maximize" else min
    complete = [trial for trial in scored if trial.get("state") != "pruned"]
    for trial in complete:
        best.append(better(best[-1], trial["value"]) if best else trial["value"])
    every = max(1, math.ceil(len(complete) / MAX_POINTS))
    kept = [at for at in range(len(complete)) if at % every == 0 or (at and best[at] != best[at - 1])]
    pruned = [trial for trial in scored if trial.get("state") == "pruned"]
    pruned = pruned[:: max(1, math.ceil(len(pruned) / MAX_POINTS))]
    traces = [
        _dots("complete", [complete[at] for at in kept], {"color": "@accent", "size": 7, "opacity": 0.75})
    ]
    text = "In the order in which they were suggested"
    if len(complete) > 1:
        line = {"shape": "hv", "color": "@second", "width": 2}
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": "best so far",
                "x": [complete[at]["number"] for at in kept],
                "y": [best[at] for at in kept],
                "line": line,
                "hoverinfo": "skip",
            }
        )
        text += "; the line is the best so far"
    shown = complete or scored
    if pruned:
        style = {"color": "@muted", "size": 6, "symbol": "circle-open"}
        dots = _dots("pruned", pruned, style)
        if complete:
            text += "; pruned trials are below, as their scores are not comparable"
            dots |= {"y": [_below(complete)] * len(pruned), "hovertemplate": PRUNED}
        traces.insert(0, dots)
    return figures.add(
        "Score of each trial",
        f"{text}.",
        traces,
        {
            "xaxis": {"title": {"text": "trial"}, "tickformat": "d", "nticks": min(12, len(scored) + 1)},
            "yaxis": _scores(metric, shown),
            "showlegend": True,
            "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        },
    )


PRUNED = "trial %{x}: pruned<br>%{text}<extra></extra>"


def _below(trials: Sequence[TrialData]) -> float:
    """Return a place on the axis of the scores that is below all of them."""
    values = [trial["value"] for trial in trials]
    span = max(values) - min(values)
    return float(min(values) - (0.12 * span or abs(values[0]) * 0.04 or 0.8))


def _scores(metric: str, trials: Sequence[TrialData]) -> dict[str, Any]:
    """Return the axis of the scores; if all are equal, Plotly's own would begin at 0."""
    values = [trial["value"] for trial in trials]
    axis: dict[str, Any] = {"title": {"text": label(metric)}, "nticks": 6}
    if min(values) == max(values):
        margin = abs(values[0]) * 0.05 or 1
        axis["range"] = [values[0] - margin, values[0] + margin]
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
    return "<br>".join(f"{label(name)} {label(setting_text(value))}" for name, value in shown)


def parallel(
    figures: Figures,
    trials: Sequence[TrialData],
    names: Sequence[str],
    logs: frozenset[str],
    metric: str,
    direction: str,
    *,
    note: str = "",
) -> Figure:
    """Draw each trial as a line across its hyperparameters to its score; better trials are brighter.

    Lines of a shade are one trace with gaps: Plotly's parallel coordinates compile scripts at run time, which
    the page's policy forbids.
    """
    names = names[:MAX_AXES]
    ordered = sorted(trials, key=lambda trial: trial["value"], reverse=direction != "maximize")
    # The best trials are all shown, and a sample of the rest.
    rest = ordered[: -MAX_LINES // 2]
    if len(ordered) > MAX_LINES:
        ordered = rest[:: math.ceil(len(rest) / (MAX_LINES // 2))] + ordered[-MAX_LINES // 2 :]
    scales = {name: Scale([trial["params"][name] for trial in ordered], log=name in logs) for name in names}
    score = Scale([trial["value"] for trial in ordered], log=False)
    traces: list[Trace] = []
    for shade, color in enumerate(SHADES):
        first, last = (len(ordered) * edge // len(SHADES) for edge in (shade, shade + 1))
        x: list[float | None] = []
        y: list[float | None] = []
        for trial in ordered[first:last]:
            x += [*range(len(names) + 1), None]
            y += [*(scales[name](trial["params"][name]) for name in names), score(trial["value"]), None]
        if x:
            line = {"color": color, "width": 2 if shade == len(SHADES) - 1 else 1}
            traces.append(_line(x, y, line, 0.35 + 0.1 * shade))
    for at, scale in enumerate([*scales.values(), score]):
        traces.append(_ticks(at, scale))
    return figures.add(
        "Hyperparameters and scores",
        f"Each line is a trial, from its hyperparameters to its {metric}; bright lines are the best."
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
) -> list[Figure]:
    """Draw, for each hyperparameter, the scores of the trials against its values."""
    drawn = trials[:: max(1, math.ceil(len(trials) / (MAX_POINTS // max(1, len(names)))))]
    found = []
    for name in names[:MAX_AXES]:
        values = [trial["params"][name] for trial in drawn]
        scale = Scale(values, log=name in logs)
        axis: dict[str, Any] = {"type": "log" if scale.log else "linear"}
        if scale.numbers:
            ends = [f"{end:.3g}" if isinstance(end, float) else str(end) for end in scale.ends()]
            axis |= {"tickvals": scale.ends(), "ticktext": ends}
        if scale.words:
            values = [label(shorten(value, 12)) for value in values]
            order = [label(shorten(word, 12)) for word in scale.words]
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
        found.append(figures.add(name, "", [dots], layout, height=200))
    return found


def importances(figures: Figures, shares: Mapping[str, float], note: str = "") -> Figure:
    """Draw the importance of each hyperparameter; the note says how trials are compared."""
    return bar_figure(
        figures,
        "Importance of hyperparameters",
        "Share of the difference between the best trials and all trials that each hyperparameter explains "
        "(PED-ANOVA)." + (f" Trials are compared {note}." if note else ""),
        shares,
        "share",
        tick_format=".0%",
    )


def surface(
    figures: Figures, trial: Mapping[str, Any], metric: str, direction: str, smallest: int = 0
) -> Figure | None:
    """Draw the scores of all configurations of one trial: a map, or a line over one axis.

    With more than two axes the first two are drawn (``n_estimators`` and ``max_depth`` if present), with the
    best score over the others in each cell. Sizes below ``smallest`` are left out: a search passes them
    without choosing from them.
    """
    if not trial.get("surface"):
        return None
    axes = {name: list(values) for name, values in trial["surface"]["axes"].items()}
    scores = np.array(trial["surface"]["values"], dtype=np.float64).reshape(
        [len(values) for values in axes.values()]
    )
    if LENGTH in axes:
        allowed = [at for at, size in enumerate(axes[LENGTH]) if size >= smallest]
        scores = np.take(scores, allowed, axis=list(axes).index(LENGTH))
        axes[LENGTH] = [axes[LENGTH][at] for at in allowed]
    wanted = sorted(axes, key=lambda name: (name != LENGTH, name != "max_depth", -len(axes[name])))
    shown = [name for name in wanted if len(axes[name]) > 1][:2]
    if not shown:
        return None
    best = np.nanmax if direction == "maximize" else np.nanmin
    others = tuple(at for at, name in enumerate(axes) if name not in shown)
    flat = best(scores, axis=others) if others else scores
    kept = [name for name in axes if name in shown]
    if kept != shown:
        flat = flat.T
    picks = [_thinned(len(axes[name])) for name in shown]
    flat = flat[np.ix_(*picks)]
    values = [[axes[name][at] for at in pick] for name, pick in zip(shown, picks, strict=True)]
    title = f"{metric} over {' and '.join(shown)}"
    text = f"All scores are of one model, which trial {trial['number']} fitted once"
    text += "; each is the best over the other hyperparameters." if others else "."
    if len(shown) == 1:
        line = {
            "type": "scatter",
            "mode": "lines+markers",
            "x": list(map(_name, values[0])),
            "y": _rounded(flat),
            "line": {"color": "@accent"},
            "hovertemplate": "%{x}: %{y:.5g}<extra></extra>",
        }
        layout = {
            "xaxis": {"title": {"text": label(shown[0])}, "type": "category", "nticks": 10},
            "yaxis": {"title": {"text": label(metric)}},
        }
        return figures.add(title, text, [line], layout)
    argbest = np.nanargmax if direction == "maximize" else np.nanargmin
    top = np.unravel_index(int(argbest(flat)), flat.shape)
    columns, rows = list(map(_name, values[0])), list(map(_name, values[1]))
    shades = MAP_SHADES if direction == "maximize" else MAP_SHADES[::-1]
    heat = {
        "type": "heatmap",
        "x": columns,
        "y": rows,
        "z": [_rounded(row) for row in flat.T],
        "colorscale": [[at / (len(MAP_SHADES) - 1), shade] for at, shade in enumerate(shades)],
        "colorbar": {"thickness": 12, "outlinewidth": 0, "nticks": 6, "title": {"text": label(metric)}},
        "hovertemplate": f"{label(shown[0])} %{{x}}<br>{label(shown[1])} %{{y}}<br>%{{z:.5g}}<extra></extra>",
    }
    mark = {
        "type": "scatter",
        "mode": "markers",
        "x": [columns[top[0]]],
        "y": [rows[top[1]]],
        "marker": {
            "symbol": "star",
            "size": 14,
            "color": "#ffffff",
            "line": {"color": "#000000", "width": 1},
        },
        "hoverinfo": "skip",
    }
    layout = {
        "xaxis": {"title": {"text": label(shown[0])}, "type": "category", "nticks": 12},
        "yaxis": {"title": {"text": label(shown[1])}, "type": "category", "nticks": 12},
    }
    text += " The star is the best score."
    taken = [_name(trial["params"].get(name)) for name in shown]
    traces: list[dict[str, Any]] = [heat, mark]
    if taken[0] in columns and taken[1] in rows and taken != [columns[top[0]], rows[top[1]]]:
        traces.append(_ring(*taken))
        text += " The ring is the selected configuration: neighboring scores differ by chance only."
    return figures.add(title, text, traces, layout, height=400)


def _ring(x: str, y: str) -> dict[str, Any]:
    style = {"symbol": "circle-open", "size": 16, "color": "#ffffff", "line": {"width": 3}}
    return {"type": "scatter", "mode": "markers", "x": [x], "y": [y], "marker": style, "hoverinfo": "skip"}


def _thinned(count: int) -> list[int]:
    every = math.ceil(count / MAX_LEVELS)
    return sorted({*range(0, count, every), count - 1})


def _name(value: object) -> str:
    return label(f"{value:.4g}" if isinstance(value, float) else value)


def _rounded(values: NDArray[np.float64]) -> list[float | None]:
    return [float(f"{value:.7g}") if math.isfinite(value) else None for value in values.tolist()]
