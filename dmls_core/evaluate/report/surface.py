"""The scores of the settings that one grown model answers, as a map."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.evaluate.report.equal_terms import LENGTH
from dmls_core.evaluate.report.figures import Figures, label

LEVELS = 60
"""Values of an axis that are drawn at most."""

TONES = ("#46327e", "#365c8d", "#277f8e", "#1fa187", "#c9cf2f")
"""From the worst to the best."""


def surface(figures: Figures, trial: Mapping[str, Any], metric: str, direction: str, least: int = 0) -> str:
    """Draw a trial's surface: a map over two hyperparameters, a line over one.

    Of more than two axes the first two are drawn (``n_estimators`` and ``max_depth`` where they are there),
    with the best score over the others in each cell. Sizes below ``least``, which a search goes through on
    its way but does not choose from, are not drawn.
    """
    axes = {name: list(values) for name, values in trial["surface"]["axes"].items()}
    scores = np.array(trial["surface"]["values"], dtype=np.float64).reshape(
        [len(values) for values in axes.values()]
    )
    if LENGTH in axes:
        allowed = [at for at, size in enumerate(axes[LENGTH]) if size >= least]
        scores = np.take(scores, allowed, axis=list(axes).index(LENGTH))
        axes[LENGTH] = [axes[LENGTH][at] for at in allowed]
    wanted = sorted(axes, key=lambda name: (name != LENGTH, name != "max_depth", -len(axes[name])))
    shown = [name for name in wanted if len(axes[name]) > 1][:2]
    if not shown:
        return ""
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
    text = f"All of these are scores of one model, which trial {trial['number']} fitted once"
    text += "; of the other settings the best." if others else "."
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
    tones = TONES if direction == "maximize" else TONES[::-1]
    heat = {
        "type": "heatmap",
        "x": columns,
        "y": rows,
        "z": [_rounded(row) for row in flat.T],
        "colorscale": [[at / (len(TONES) - 1), tone] for at, tone in enumerate(tones)],
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
    text += " The star is the best."
    taken = [_name(trial["params"].get(name)) for name in shown]
    traces: list[dict[str, Any]] = [heat, mark]
    if taken[0] in columns and taken[1] in rows and taken != [columns[top[0]], rows[top[1]]]:
        traces.append(_ring(*taken))
        text += " The ring is what was taken: neighbours differ by chance, and so does the best of them."
    return figures.add(title, text, traces, layout, height=400)


def _ring(x: str, y: str) -> dict[str, Any]:
    style = {"symbol": "circle-open", "size": 16, "color": "#ffffff", "line": {"width": 3}}
    return {"type": "scatter", "mode": "markers", "x": [x], "y": [y], "marker": style, "hoverinfo": "skip"}


def _thinned(count: int) -> list[int]:
    every = math.ceil(count / LEVELS)
    return sorted({*range(0, count, every), count - 1})


def _name(value: object) -> str:
    return label(f"{value:.4g}" if isinstance(value, float) else value)


def _rounded(values: NDArray[np.float64]) -> list[float | None]:
    return [float(f"{value:.7g}") if math.isfinite(value) else None for value in values.tolist()]
