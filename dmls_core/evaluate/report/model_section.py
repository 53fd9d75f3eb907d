"""The parts of the page about the model and its features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dmls_core.evaluate.holdout import QUANTILES
from dmls_core.evaluate.insight import Insight
from dmls_core.evaluate.report import model_figures
from dmls_core.evaluate.report.figures import Figures, bar_figure
from dmls_core.evaluate.report.parts import folded, matrix, paragraph, table

FEATURES = 25
"""Features shown: the most important ones."""

PAIRS = 15
"""Mixed-up pairs of classes that are listed where the matrix is too large to read."""

BESIDE = 6
"""Classes up to which the confusion matrix stands beside the scores."""

CLASSES = 50
"""Rows of the table of classes."""


def render(figures: Figures, result: Mapping[str, Any], insight: Insight, target: str) -> str:
    """Return the HTML of the section on the model; ``target`` is what it predicts."""
    holdout = result["holdout"]
    scores = "<h3>Scores</h3>" + table(["metric", "value"], list(holdout["metrics"].items()))
    confusion, labels = holdout["confusion"], result["labels"]
    if not labels or not confusion:
        ends = {0.0: "the smallest", 1.0: "the largest"}
        shares = [ends.get(share, f"{share:.0%} of the rows are below") for share in QUANTILES]
        rows = list(zip(shares, holdout["residuals"] or [], strict=False))
        told = "<h3>Residuals, predicted minus true</h3>" + table(["", "residual"], rows)
        return _columns(scores, told) + _columns(model_figures.regression(figures, insight, target))
    total = max(1, sum(map(sum, confusion)))
    mixed = _confusion(figures, labels, confusion)
    html = (
        _columns(scores, mixed + _classes(labels, confusion))
        if len(labels) <= BESIDE
        else _columns(scores, _classes(labels, confusion)) + mixed
    )
    class_shares = [sum(row) / total for row in confusion]
    return html + _columns(model_figures.curves(figures, insight, labels, class_shares))


def _confusion(figures: Figures, labels: Sequence[str], confusion: Sequence[Sequence[int]]) -> str:
    """Return the confusion matrix: a table, a map, or of very many classes the worst pairs alone."""
    if len(labels) <= model_figures.CLASSES:
        return "<h3>Confusion matrix</h3>" + matrix(labels, confusion)
    drawn = (
        model_figures.confusion_map(figures, labels, confusion) if len(labels) <= model_figures.MOST else ""
    )
    return drawn + _mixed_up(labels, confusion)


def _columns(*parts: str) -> str:
    content = "".join(f"<div>{part}</div>" for part in parts) if parts[1:] else parts[0]
    return f'<div class="columns">{content}</div>'


def _classes(labels: Sequence[str], confusion: Sequence[Sequence[int]]) -> str:
    predicted = [sum(column) for column in zip(*confusion, strict=True)]
    rows = []
    for code, label in enumerate(labels):
        held, right = sum(confusion[code]), confusion[code][code]
        precision = right / predicted[code] if predicted[code] else None
        rows.append([label, held, precision, right / held if held else None])
    head = ["class", "rows", "precision", "recall"]
    note = ""
    if len(rows) > CLASSES:
        rows = sorted(rows, key=lambda row: (row[3] is None, row[3]))[:CLASSES]
        note = paragraph(f"The {CLASSES} classes of the lowest recall, of {len(labels)}.")
    shown = table(head, rows[:FEATURES])
    more = rows[FEATURES:]
    return (
        "<h3>Classes</h3>" + note + shown + (folded(f"{len(more)} more", table(head, more)) if more else "")
    )


def _mixed_up(labels: Sequence[str], confusion: Sequence[Sequence[int]]) -> str:
    pairs = [
        (count, true, predicted)
        for true, row in enumerate(confusion)
        for predicted, count in enumerate(row)
        if count and true != predicted
    ]
    pairs.sort(key=lambda pair: (-pair[0], pair[1], pair[2]))
    rows = [[labels[true], labels[predicted], count] for count, true, predicted in pairs[:PAIRS]]
    return "<h3>Mixed up most often</h3>" + table(["true", "predicted", "rows"], rows) if rows else ""


def render_features(figures: Figures, result: Mapping[str, Any], insight: Insight) -> str:
    """Return the HTML of the section on the features."""
    shares = sorted(result["importances"].items(), key=lambda pair: -pair[1])
    html = bar_figure(
        figures,
        "The model's own importance",
        "How much of its decisions the trees owe to each feature; it flatters features of many values.",
        dict(shares[:FEATURES]),
        "share",
        tick_format=".0%",
    )
    if insight.permutation:
        html += model_figures.permutation(figures, insight, result["metric"])
    rows = [[name, share, *_loss(insight, name)] for name, share in shares[:FEATURES]]
    head = ["feature", "own importance", "permutation", "± over shuffles"]
    note = (
        f"{len(shares) - FEATURES:,} features of less importance are not shown." if shares[FEATURES:] else ""
    )
    return (
        f'<div class="columns">{html}</div>'
        + (paragraph(note) if note else "")
        + folded("The same as a table", table(head, rows))
    )


def _loss(insight: Insight, name: str) -> tuple[float | None, float | None]:
    return insight.permutation.get(name, (None, None))
