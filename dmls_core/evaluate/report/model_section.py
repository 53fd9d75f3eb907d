"""The report's sections on the model and its features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dmls_core.evaluate.diagnostics import QUANTILES, Curve, Diagnostics
from dmls_core.evaluate.report.figures import Figure, bar_figure, label
from dmls_core.html import Matrix, TableData
from dmls_core.html.formats import shorten

_MAX_FEATURES = 25

_MAX_PAIRS = 15
"""Confused pairs of classes that are listed if the matrix is too large."""

_MAX_SIDE_BY_SIDE = 6
"""Classes up to which the confusion matrix is next to the scores."""

_MAX_CLASSES = 50
"""Rows of the table of classes."""

_VISIBLE_CLASSES = 25

_MAX_MATRIX = 25
"""Classes up to which the confusion matrix is a table."""

_MAX_MAP = 200
"""Classes up to which the confusion matrix is a map."""

_LEGEND_LENGTH = 28
"""Characters of a class in a legend."""


def content(result: Mapping[str, Any], diagnostics: Diagnostics, target: str) -> dict[str, Any]:
    """Return the variables of ``report/model.html``; ``target`` is the name of the predicted column."""
    holdout, labels = result["holdout"], result["labels"]
    scores = TableData(["metric", "value"], list(holdout["metrics"].items()))
    confusion = holdout["confusion"]
    if not labels or not confusion:
        ends = {0.0: "smallest", 1.0: "largest"}
        shares = [ends.get(share, f"{share:.0%} of the rows are below") for share in QUANTILES]
        rows = list(zip(shares, holdout["residuals"] or [], strict=False))
        return {
            "scores": scores,
            "residuals": TableData(["", "residual"], rows),
            "figures": _regression_figures(diagnostics, target),
        }
    total = max(1, sum(map(sum, confusion)))
    large = len(labels) > _MAX_MATRIX
    shown, more = _class_tables(labels, confusion)
    return {
        "scores": scores,
        "residuals": None,
        "side_by_side": len(labels) <= _MAX_SIDE_BY_SIDE,
        "matrix": None if large else Matrix(labels, confusion),
        "map": _confusion_map(labels, confusion) if large and len(labels) <= _MAX_MAP else None,
        "confused": _confused_pairs(labels, confusion) if large else None,
        "listed": _MAX_CLASSES if len(labels) > _MAX_CLASSES else 0,
        "n_classes": len(labels),
        "classes": shown,
        "more_classes": more,
        "figures": _class_curves(diagnostics, labels, [sum(row) / total for row in confusion]),
    }


def _class_tables(
    labels: Sequence[str], confusion: Sequence[Sequence[int]]
) -> tuple[TableData, TableData | None]:
    """Return the table of classes: the visible rows, and those that are shown on a click."""
    predicted = [sum(column) for column in zip(*confusion, strict=True)]
    rows: list[list[Any]] = []
    for code, name in enumerate(labels):
        held, right = sum(confusion[code]), confusion[code][code]
        precision = right / predicted[code] if predicted[code] else None
        rows.append([name, held, precision, right / held if held else None])
    header = ["class", "rows", "precision", "recall"]
    if len(rows) > _MAX_CLASSES:
        rows = sorted(rows, key=lambda row: (row[3] is None, row[3]))[:_MAX_CLASSES]
    more = rows[_VISIBLE_CLASSES:]
    return TableData(header, rows[:_VISIBLE_CLASSES]), TableData(header, more) if more else None


def _confused_pairs(labels: Sequence[str], confusion: Sequence[Sequence[int]]) -> TableData | None:
    pairs = [
        (count, true, predicted)
        for true, row in enumerate(confusion)
        for predicted, count in enumerate(row)
        if count and true != predicted
    ]
    pairs.sort(key=lambda pair: (-pair[0], pair[1], pair[2]))
    rows = [[labels[true], labels[predicted], count] for count, true, predicted in pairs[:_MAX_PAIRS]]
    return TableData(["true", "predicted", "rows"], rows) if rows else None


def feature_content(result: Mapping[str, Any], diagnostics: Diagnostics) -> dict[str, Any]:
    """Return the variables of ``report/features.html``."""
    shares = sorted(result["importances"].items(), key=lambda pair: -pair[1])
    figures = [
        bar_figure(
            "Importance in the model",
            "Share of the trees' decisions that each feature contributes; features with many values are "
            "overestimated.",
            dict(shares[:_MAX_FEATURES]),
            "share",
            percentages=True,
        )
    ]
    if diagnostics.permutation:
        figures.append(_permutation_figure(diagnostics, result["metric"]))
    undefined = (None, None)
    rows = [[name, share, *diagnostics.permutation.get(name, undefined)] for name, share in shares]
    header = ["feature", "importance in the model", "permutation importance", "± standard deviation"]
    return {
        "figures": figures,
        "hidden": max(0, len(shares) - _MAX_FEATURES),
        "table": TableData(header, rows[:_MAX_FEATURES]),
    }


def _permutation_figure(diagnostics: Diagnostics, metric: str) -> Figure:
    return bar_figure(
        "Permutation importance",
        f"How much worse {metric} on the holdout gets when the feature is permuted, with the standard "
        "deviation over the permutations.",
        {name: mean for name, (mean, _) in diagnostics.permutation.items()},
        f"loss of {metric}",
        spread=[spread for _, spread in diagnostics.permutation.values()],
    )


def _class_curves(diagnostics: Diagnostics, labels: Sequence[str], shares: Sequence[float]) -> list[Figure]:
    """Draw ROC, precision-recall and calibration curves; ``shares``: of the classes in the holdout."""
    figures = []
    values: dict[str, Any]
    if diagnostics.roc:
        text = (
            "All classes pooled: true positive rate against false positive rate."
            if diagnostics.roc[0]["code"] < 0
            else "True positive rate against false positive rate; the dashed line is chance."
        )
        values = {
            "x_name": "false positive rate",
            "y_name": "true positive rate",
            "curves": [_named(curve, labels, "AUC") for curve in diagnostics.roc],
            "chance": [{"code": None, "from": 0, "to": 1}],
        }
        figures.append(_curves("ROC", text, values))
    if diagnostics.recalls:
        text = "Precision as recall increases."
        chance: list[dict[str, Any]] = []
        if len(labels) == 2:
            text += " The dashed lines are chance."
            codes = [curve["code"] for curve in diagnostics.recalls]
            chance = [{"code": code, "from": shares[code], "to": shares[code]} for code in codes]
        values = {
            "x_name": "recall",
            "y_name": "precision",
            "curves": [_named(curve, labels, "AP") for curve in diagnostics.recalls],
            "chance": chance,
        }
        figures.append(_curves("Precision and recall", text, values))
    text = (
        f"Predicted probability of {shorten(labels[1])} and how often it occurred."
        if len(labels) == 2
        else "Probability of the predicted class and how often the prediction was correct."
    )
    text += " On the dashed line the probabilities are calibrated. Larger dots have more rows."
    axes = {"x_name": "predicted probability", "y_name": "observed frequency", "probabilities": True}
    values = {**diagnostics.calibration, **axes}
    return [*figures, Figure("Calibration", text, "calibration", values, height=380)]


def _curves(title: str, text: str, values: Mapping[str, Any]) -> Figure:
    return Figure(title, text, "curves", values, height=320 + 18 * len(values["curves"]))


def _named(curve: Curve, labels: Sequence[str], area: str) -> dict[str, Any]:
    """Return a curve with its name for the legend."""
    name = "all classes" if curve["code"] < 0 else shorten(labels[curve["code"]], _LEGEND_LENGTH)
    return {"name": f"{name} ({area} {curve['area']:.3f})", **curve}


def _confusion_map(labels: Sequence[str], counts: Sequence[Sequence[int]]) -> Figure:
    shares = [[round(count / max(1, sum(row)), 4) for count in row] for row in counts]
    return Figure(
        "Confusion matrix",
        "Share of each true class (row) that was predicted as each class (column).",
        "confusion_map",
        {"labels": list(map(label, labels)), "shares": shares},
        height=min(900, 220 + 11 * len(labels)),
        wide=True,
    )


def _regression_figures(diagnostics: Diagnostics, target: str) -> list[Figure]:
    points, bars, means = diagnostics.scatter or {}, diagnostics.residuals or {}, diagnostics.calibration
    true, predicted = points["truth"], points["predicted"]
    residuals = [float(f"{p - t:.6g}") for t, p in zip(true, predicted, strict=True)]
    x_name, y_name = f"true {label(target)}", f"predicted {label(target)}"
    return [
        Figure(
            "Predicted against true",
            "Each dot is a held-out row; on the dashed line the prediction is exact.",
            "scatter",
            {"x": true, "y": predicted, "x_name": x_name, "y_name": y_name, "zero": False},
            height=380,
        ),
        Figure(
            "Residuals",
            "Predicted minus true value, against the prediction: a pattern means there is more to learn.",
            "scatter",
            {"x": predicted, "y": residuals, "x_name": y_name, "y_name": "residual", "zero": True},
            height=380,
        ),
        Figure(
            "Distribution of the residuals",
            "Held-out rows by predicted minus true value.",
            "histogram",
            {"middle": bars["middle"], "rows": bars["rows"], "x_name": "residual"},
            height=380,
        ),
        Figure(
            "Calibration",
            "Mean prediction and mean true value of ten groups of rows; on the dashed line they are equal.",
            "calibration",
            {**means, "x_name": f"mean {y_name}", "y_name": f"mean {x_name}", "probabilities": False},
            height=380,
        ),
    ]
