"""The report's sections on the model and its features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dmls_core.evaluate.diagnostics import QUANTILES, Curve, Diagnostics
from dmls_core.evaluate.report.figures import COLORS, Figure, Figures, Trace, bar_figure, label
from dmls_core.html import Matrix, Table
from dmls_core.html.formats import shorten

MAX_FEATURES = 25

MAX_PAIRS = 15
"""Confused pairs of classes that are listed if the matrix is too large."""

MAX_SIDE_BY_SIDE = 6
"""Classes up to which the confusion matrix is next to the scores."""

MAX_CLASSES = 50
"""Rows of the table of classes."""

VISIBLE_CLASSES = 25

MAX_MATRIX = 25
"""Classes up to which the confusion matrix is a table."""

MAX_MAP = 200
"""Classes up to which the confusion matrix is a map."""

STROKES = ("solid", "dot", "dashdot")
"""Curves of more than two classes differ in more than their color."""


def content(
    figures: Figures, result: Mapping[str, Any], diagnostics: Diagnostics, target: str
) -> dict[str, Any]:
    """Return the variables of ``report/model.html``; ``target`` is the name of the predicted column."""
    holdout, labels = result["holdout"], result["labels"]
    scores = Table(["metric", "value"], list(holdout["metrics"].items()))
    confusion = holdout["confusion"]
    if not labels or not confusion:
        ends = {0.0: "smallest", 1.0: "largest"}
        shares = [ends.get(share, f"{share:.0%} of the rows are below") for share in QUANTILES]
        rows = list(zip(shares, holdout["residuals"] or [], strict=False))
        return {
            "scores": scores,
            "residuals": Table(["", "residual"], rows),
            "figures": _regression_figures(figures, diagnostics, target),
        }
    total = max(1, sum(map(sum, confusion)))
    large = len(labels) > MAX_MATRIX
    shown, more = _class_tables(labels, confusion)
    return {
        "scores": scores,
        "residuals": None,
        "side_by_side": len(labels) <= MAX_SIDE_BY_SIDE,
        "matrix": None if large else Matrix(labels, confusion),
        "map": _confusion_map(figures, labels, confusion) if large and len(labels) <= MAX_MAP else None,
        "confused": _confused_pairs(labels, confusion) if large else None,
        "listed": MAX_CLASSES if len(labels) > MAX_CLASSES else 0,
        "n_classes": len(labels),
        "classes": shown,
        "more_classes": more,
        "figures": _class_curves(figures, diagnostics, labels, [sum(row) / total for row in confusion]),
    }


def _class_tables(labels: Sequence[str], confusion: Sequence[Sequence[int]]) -> tuple[Table, Table | None]:
    """Return the table of classes: the visible rows, and those that are shown on a click."""
    predicted = [sum(column) for column in zip(*confusion, strict=True)]
    rows: list[list[Any]] = []
    for code, name in enumerate(labels):
        held, right = sum(confusion[code]), confusion[code][code]
        precision = right / predicted[code] if predicted[code] else None
        rows.append([name, held, precision, right / held if held else None])
    header = ["class", "rows", "precision", "recall"]
    if len(rows) > MAX_CLASSES:
        rows = sorted(rows, key=lambda row: (row[3] is None, row[3]))[:MAX_CLASSES]
    more = rows[VISIBLE_CLASSES:]
    return Table(header, rows[:VISIBLE_CLASSES]), Table(header, more) if more else None


def _confused_pairs(labels: Sequence[str], confusion: Sequence[Sequence[int]]) -> Table | None:
    pairs = [
        (count, true, predicted)
        for true, row in enumerate(confusion)
        for predicted, count in enumerate(row)
        if count and true != predicted
    ]
    pairs.sort(key=lambda pair: (-pair[0], pair[1], pair[2]))
    rows = [[labels[true], labels[predicted], count] for count, true, predicted in pairs[:MAX_PAIRS]]
    return Table(["true", "predicted", "rows"], rows) if rows else None


def feature_content(figures: Figures, result: Mapping[str, Any], diagnostics: Diagnostics) -> dict[str, Any]:
    """Return the variables of ``report/features.html``."""
    shares = sorted(result["importances"].items(), key=lambda pair: -pair[1])
    found = [
        bar_figure(
            figures,
            "Importance in the model",
            "Share of the trees' decisions that each feature contributes; features with many values are "
            "overestimated.",
            dict(shares[:MAX_FEATURES]),
            "share",
            tick_format=".0%",
        )
    ]
    if diagnostics.permutation:
        found.append(_permutation_figure(figures, diagnostics, result["metric"]))
    undefined = (None, None)
    rows = [[name, share, *diagnostics.permutation.get(name, undefined)] for name, share in shares]
    header = ["feature", "importance in the model", "permutation importance", "± standard deviation"]
    return {
        "figures": found,
        "hidden": max(0, len(shares) - MAX_FEATURES),
        "table": Table(header, rows[:MAX_FEATURES]),
    }


def _permutation_figure(figures: Figures, diagnostics: Diagnostics, metric: str) -> Figure:
    return bar_figure(
        figures,
        "Permutation importance",
        f"How much worse {metric} on the holdout gets when the feature is permuted, with the standard "
        "deviation over the permutations.",
        {name: mean for name, (mean, _) in diagnostics.permutation.items()},
        f"loss of {metric}",
        spread=[spread for _, spread in diagnostics.permutation.values()],
    )


def _class_curves(
    figures: Figures, diagnostics: Diagnostics, labels: Sequence[str], shares: Sequence[float]
) -> list[Figure]:
    """Draw ROC, precision-recall and calibration curves; ``shares``: of the classes in the holdout."""
    chance = _dashes([0, 1], [0, 1])
    found = []
    if diagnostics.roc:
        text = (
            "All classes pooled: true positive rate against false positive rate."
            if diagnostics.roc[0]["code"] < 0
            else "True positive rate against false positive rate; the dashed line is chance."
        )
        traces = [_curve(curve, labels, "AUC") for curve in diagnostics.roc]
        layout = _unit("false positive rate", "true positive rate") | _legend(len(traces))
        found.append(figures.add("ROC", text, [chance, *traces], layout, height=380))
    if diagnostics.recalls:
        traces = [_curve(curve, labels, "AP") for curve in diagnostics.recalls]
        text = "Precision as recall increases."
        if len(labels) == 2:
            text += " The dashed lines are chance."
            for curve in diagnostics.recalls:
                chance_line = _dashes([0, 1], [shares[curve["code"]]] * 2)
                chance_line["line"]["color"] = COLORS[curve["code"]]
                traces.insert(0, chance_line)
        layout = _unit("recall", "precision") | _legend(len(traces))
        found.append(figures.add("Precision and recall", text, traces, layout, height=380))
    text = (
        f"Predicted probability of {shorten(labels[1])} and how often it occurred."
        if len(labels) == 2
        else "Probability of the predicted class and how often the prediction was correct."
    )
    calibration = figures.add(
        "Calibration",
        f"{text} On the dashed line the probabilities are calibrated. Larger dots have more rows.",
        [chance, _reliability(diagnostics)],
        _unit("predicted probability", "observed frequency"),
        height=380,
    )
    return [*found, calibration]


def _confusion_map(figures: Figures, labels: Sequence[str], counts: Sequence[Sequence[int]]) -> Figure:
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
        "Share of each true class (row) that was predicted as each class (column).",
        [heat],
        layout,
        height=min(900, 220 + 11 * len(labels)),
        wide=True,
    )


def _regression_figures(figures: Figures, diagnostics: Diagnostics, target: str) -> list[Figure]:
    points, bars = diagnostics.scatter or {}, diagnostics.residuals or {}
    name = label(target)
    truth, predicted = points["truth"], points["predicted"]
    ends = [min(truth + predicted), max(truth + predicted)]
    residuals = [float(f"{p - t:.6g}") for t, p in zip(truth, predicted, strict=True)]
    across = [min(predicted), max(predicted)]
    histogram = {
        "type": "bar",
        "x": bars["middle"],
        "y": bars["rows"],
        "width": bars["width"],
        "marker": {"color": "@accent", "opacity": 0.8},
        "hovertemplate": "about %{x:.4g}: %{y} rows<extra></extra>",
    }
    means = diagnostics.calibration
    mean_ends = [min(means["predicted"] + means["observed"]), max(means["predicted"] + means["observed"])]
    return [
        figures.add(
            "Predicted against true",
            "Each dot is a held-out row; on the dashed line the prediction is exact.",
            [_dashes(ends, ends), _cloud(truth, predicted)],
            {"xaxis": {"title": {"text": f"true {name}"}}, "yaxis": {"title": {"text": f"predicted {name}"}}},
            height=380,
        ),
        figures.add(
            "Residuals",
            "Predicted minus true value, against the prediction: a pattern means there is more to learn.",
            [_dashes(across, [0, 0]), _cloud(predicted, residuals)],
            {"xaxis": {"title": {"text": f"predicted {name}"}}, "yaxis": {"title": {"text": "residual"}}},
            height=380,
        ),
        figures.add(
            "Distribution of the residuals",
            "Held-out rows by predicted minus true value.",
            [histogram],
            {"xaxis": {"title": {"text": "residual"}}, "yaxis": {"title": {"text": "rows"}}, "bargap": 0.05},
            height=380,
        ),
        figures.add(
            "Calibration",
            "Mean prediction and mean true value of ten groups of rows; on the dashed line they are equal.",
            [_dashes(mean_ends, mean_ends), _reliability(diagnostics)],
            {
                "xaxis": {"title": {"text": f"mean predicted {name}"}},
                "yaxis": {"title": {"text": f"mean true {name}"}},
            },
            height=380,
        ),
    ]


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
            "color": COLORS[max(0, code) % len(COLORS)],
            "width": 2,
            "dash": STROKES[max(0, code) % len(STROKES)] if len(labels) > 2 else "solid",
        },
        "hovertemplate": "%{x:.3f}, %{y:.3f}<extra>" + name + "</extra>",
    }


def _reliability(diagnostics: Diagnostics) -> Trace:
    bins = diagnostics.calibration
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
