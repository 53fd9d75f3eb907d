"""Figures of the model on its holdout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dmls_core.evaluate.curves import Curve
from dmls_core.evaluate.insight import Insight
from dmls_core.evaluate.report.figures import COLOURS, Figures, Trace, bar_figure, label
from dmls_core.evaluate.report.parts import cut

CLASSES = 25
"""Classes up to which the confusion matrix is a table."""

MOST = 200
"""Classes up to which it is a map."""

STROKES = ("solid", "dot", "dashdot")
"""Curves of more than two classes differ by more than their colour."""


def curves(figures: Figures, insight: Insight, labels: Sequence[str], shares: Sequence[float]) -> str:
    """Draw ROC, precision-recall and calibration.

    Args:
        figures: takes them.
        insight: the points.
        labels: the classes.
        shares: share of the held-out rows of each class.
    """
    chance = _dashes([0, 1], [0, 1])
    html = ""
    if insight.roc:
        text = (
            "All classes pooled: what is found against what is wrongly taken for it."
            if insight.roc[0]["code"] < 0
            else "What is found of a class against what is wrongly taken for it; the dashes are chance."
        )
        traces = [_curve(curve, labels, "AUC") for curve in insight.roc]
        layout = _unit("false positive rate", "true positive rate") | _legend(len(traces))
        html += figures.add("ROC", text, [chance, *traces], layout, height=380)
    if insight.recalls:
        traces = [_curve(curve, labels, "AP") for curve in insight.recalls]
        text = "How much of what is called a class is one, as more of the class is found."
        if len(labels) == 2:
            text += " The dashes are chance."
            for curve in insight.recalls:
                chance_line = _dashes([0, 1], [shares[curve["code"]]] * 2)
                chance_line["line"]["color"] = COLOURS[curve["code"]]
                traces.insert(0, chance_line)
        layout = _unit("recall", "precision") | _legend(len(traces))
        html += figures.add("Precision and recall", text, traces, layout, height=380)
    text = (
        f"How often {cut(labels[1])} came true where its probability was stated so."
        if len(labels) == 2
        else "How often the answer was right where it was stated to be so sure."
    )
    points = _reliability(insight)
    return html + figures.add(
        "Calibration",
        text
        + " On the dashes the probabilities can be taken at their word. The larger a dot, the more rows.",
        [chance, points],
        _unit("stated probability", "share that came true"),
        height=380,
    )


def confusion_map(figures: Figures, labels: Sequence[str], counts: Sequence[Sequence[int]]) -> str:
    """Draw the confusion matrix of many classes as shares of its rows."""
    shares = [[round(count / max(1, sum(row)), 4) for count in row] for row in counts]
    places = list(range(len(labels)))
    names = list(map(label, labels))
    heat = {
        "type": "heatmap",
        "x": places,
        "y": places,
        "z": shares,
        "zmin": 0,
        "zmax": 1,
        "colorscale": [[0, "rgba(127,127,127,0.06)"], [0.02, "@accent-soft"], [1, "@accent"]],
        "colorbar": {"thickness": 12, "outlinewidth": 0, "tickformat": ".0%"},
        "hovertemplate": "true %{y}, predicted %{x}: %{z:.1%}<extra></extra>",
    }
    axis = {
        "showgrid": False,
        "tickvals": places,
        "ticktext": names,
        "tickfont": {"size": 9 if len(names) < 60 else 6},
    }
    layout = {
        "xaxis": {**axis, "title": {"text": "predicted"}, "tickangle": 90},
        "yaxis": {**axis, "title": {"text": "true"}, "autorange": "reversed"},
    }
    return figures.add(
        "Confusion matrix",
        "Share of each true class (row) that was called what.",
        [heat],
        layout,
        height=min(900, 220 + 11 * len(labels)),
        wide=True,
    )


def regression(figures: Figures, insight: Insight, target: str) -> str:
    """Draw predicted against true values, residuals and their histogram, and calibration."""
    points, bars = insight.scatter or {}, insight.residuals or {}
    name = label(target)
    truth, predicted = points["truth"], points["predicted"]
    ends = [min(truth + predicted), max(truth + predicted)]
    html = figures.add(
        "Predicted against true",
        "Each dot is a held-out row; on the dashes the prediction is right.",
        [_dashes(ends, ends), _cloud(truth, predicted)],
        {"xaxis": {"title": {"text": f"true {name}"}}, "yaxis": {"title": {"text": f"predicted {name}"}}},
        height=380,
    )
    residuals = [float(f"{p - t:.6g}") for t, p in zip(truth, predicted, strict=True)]
    across = [min(predicted), max(predicted)]
    html += figures.add(
        "Residuals",
        "Predicted minus true, against the prediction: a pattern here is something left to learn.",
        [_dashes(across, [0, 0]), _cloud(predicted, residuals)],
        {"xaxis": {"title": {"text": f"predicted {name}"}}, "yaxis": {"title": {"text": "residual"}}},
        height=380,
    )
    histogram = {
        "type": "bar",
        "x": bars["middle"],
        "y": bars["rows"],
        "width": bars["width"],
        "marker": {"color": "@accent", "opacity": 0.8},
        "hovertemplate": "about %{x:.4g}: %{y} rows<extra></extra>",
    }
    html += figures.add(
        "How large the residuals are",
        "Held-out rows by predicted minus true.",
        [histogram],
        {"xaxis": {"title": {"text": "residual"}}, "yaxis": {"title": {"text": "rows"}}, "bargap": 0.05},
        height=380,
    )
    means = insight.calibration
    ends = [min(means["predicted"] + means["observed"]), max(means["predicted"] + means["observed"])]
    return html + figures.add(
        "Calibration",
        "Mean prediction and mean true value of a tenth of the rows each; on the dashes they agree.",
        [_dashes(ends, ends), _reliability(insight)],
        {
            "xaxis": {"title": {"text": f"mean predicted {name}"}},
            "yaxis": {"title": {"text": f"mean true {name}"}},
        },
        height=380,
    )


def permutation(figures: Figures, insight: Insight, metric: str) -> str:
    """Draw what the score loses when a feature is shuffled."""
    return bar_figure(
        figures,
        "Permutation importance",
        f"How much worse {metric} on the holdout gets when the feature is shuffled, and the spread over the "
        "shuffles.",
        {name: mean for name, (mean, _) in insight.permutation.items()},
        f"loss of {metric}",
        spread=[spread for _, spread in insight.permutation.values()],
    )


def _curve(curve: Curve, labels: Sequence[str], area: str) -> Trace:
    code = curve["code"]
    name = "all classes" if code < 0 else label(labels[code])
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"{name} ({area} {curve['area']:.3f})",
        "x": curve["x"],
        "y": curve["y"],
        "line": {
            "color": COLOURS[max(0, code) % len(COLOURS)],
            "width": 2,
            "dash": STROKES[max(0, code) % len(STROKES)] if len(labels) > 2 else "solid",
        },
        "hovertemplate": "%{x:.3f}, %{y:.3f}<extra>" + name + "</extra>",
    }


def _reliability(insight: Insight) -> Trace:
    bins = insight.calibration
    largest = max(bins["rows"])
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": bins["predicted"],
        "y": bins["observed"],
        "text": [f"{rows} rows" for rows in bins["rows"]],
        "marker": {
            "color": "@accent",
            "size": [round(6 + 12 * (n / largest) ** 0.5, 1) for n in bins["rows"]],
        },
        "line": {"color": "@accent", "width": 1.5},
        "hovertemplate": "%{x:.4g}: %{y:.4g}<br>%{text}<extra></extra>",
    }


def _cloud(x: list[float], y: list[float]) -> Trace:
    return {
        "type": "scatter",
        "mode": "markers",
        "x": x,
        "y": y,
        "marker": {"color": "@accent", "size": 5, "opacity": 0.5},
        "hovertemplate": "%{x:.5g}, %{y:.5g}<extra></extra>",
    }


def _dashes(x: Sequence[float], y: Sequence[float]) -> Trace:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": list(x),
        "y": list(y),
        "line": {"color": "@muted", "width": 1, "dash": "dash"},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _unit(x: str, y: str) -> dict[str, Any]:
    return {
        "xaxis": {"title": {"text": x}, "range": [-0.02, 1.02], "nticks": 6},
        "yaxis": {"title": {"text": y}, "range": [-0.02, 1.04], "nticks": 6},
    }


def _legend(curves: int) -> dict[str, Any]:
    below = {"orientation": "h", "y": -0.2, "x": 0, "font": {"size": 11}}
    return {"showlegend": True, "legend": below, "margin": {"l": 48, "r": 12, "t": 12, "b": 60 + 9 * curves}}
