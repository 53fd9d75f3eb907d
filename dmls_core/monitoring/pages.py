"""The drift page and the page about delayed labels: HTML and SVG without scripts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dmls_core.html import render_page
from dmls_core.monitoring.drift import ALPHA, MIN_ROWS, ColumnDrift, DriftResult
from dmls_core.monitoring.profile import ProfileColumn

_LISTED_COLUMNS = 200

_PLOTTED_COLUMNS = 30
"""Columns with a plot; drifted columns come first."""

_PLOTTED_BINS = 30
"""Bins in a plot, those with the largest shares."""

_PLOTTED_POINTS = 40
"""Comparisons in the plot of scores over time, the latest."""

_BAR_HEIGHT, _BIN_WIDTH, _BAR_WIDTH = 120, 62, 26
_WIDTH, _HEIGHT, _LEFT, _STEP = 820, 220, 60, 18

_RULE = (
    "A column has drifted if its population stability index reaches {threshold:g} and its change is "
    "significant at a false discovery rate of {alpha:g} over all columns (chi-squared test of the bins, "
    "exact tests of missing values, of values outside all bins and of rare bins). At least {rows} rows "
    "are needed."
)


def drift_page(drift: DriftResult, title: str) -> str:
    """Return the page of a drift comparison; the title is the job or file that was compared."""
    return render_page(
        "drift.html",
        f"DriftResult of {title}",
        drift=drift,
        listed=drift.columns[:_LISTED_COLUMNS],
        unlisted=max(0, len(drift.columns) - _LISTED_COLUMNS),
        plots=[_histograms(column) for column in drift.compared[:_PLOTTED_COLUMNS] if column.new],
        rule=_RULE.format(threshold=drift.threshold, alpha=ALPHA, rows=MIN_ROWS),
        small=_small,
    )


def decay_page(document: Mapping[str, Any], rule: str) -> str:
    """Return the page about the scores on delayed labels, from ``decay.json`` and the definition of decay."""
    history = document["history"][-_PLOTTED_POINTS:]
    return render_page(
        "decay.html",
        f"Delayed labels of {document['team']}/{document['job']}",
        document=document,
        rule=rule,
        plot=_score_plot(history) if history else None,
        score=_score,
    )


def _small(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}" if value >= 0.001 or value == 0 else f"{value:.0e}"


def _score(score: float | None, interval: Sequence[float] | None) -> str:
    if score is None:
        return ""
    return f"{score:.4g}" + (f" ({interval[0]:.4g} to {interval[1]:.4g})" if interval else "")


def _bin_labels(column: ProfileColumn) -> list[str]:
    if column.kind == "category":
        return [*column.categories, "others", "missing"]
    first = [f"{edge:.3g}" for edge in column.edges[:1]]
    return [*first, *(f"≤ {edge:.3g}" for edge in column.edges[1:]), "outside", "missing"]


def _histograms(drift: ColumnDrift) -> dict[str, Any]:
    old, new = drift.old, drift.new or drift.old
    shares = [
        (label, before / old.rows, after / new.rows)
        for label, before, after in zip(
            _bin_labels(old),
            (*old.counts, old.other, old.missing),
            (*new.counts, new.other, new.missing),
            strict=True,
        )
        if before or after
    ]
    largest = sorted(range(len(shares)), key=lambda at: -max(shares[at][1:]))[:_PLOTTED_BINS]
    shown = [shares[at] for at in sorted(largest)]
    top = max((max(before, after) for _, before, after in shown), default=0.0) or 1.0
    bins = [
        {
            "x": _BIN_WIDTH * at,
            "middle": 4 + _BAR_WIDTH,
            "label": label,
            "short_label": label if len(label) <= 10 else label[:9] + "…",
            "old": before,
            "new": after,
            "bars": (_bar(4, before / top, "old"), _bar(4 + _BAR_WIDTH, after / top, "new")),
        }
        for at, (label, before, after) in enumerate(shown)
    ]
    width = _BIN_WIDTH * max(1, len(shown))
    return {"column": drift, "width": width, "height": _BAR_HEIGHT + 20, "bins": bins}


def _bar(x: int, share: float, style: str) -> dict[str, Any]:
    height = _BAR_HEIGHT * share
    position = {"x": x, "y": f"{_BAR_HEIGHT - height:.1f}", "width": _BAR_WIDTH, "height": f"{height:.1f}"}
    return {"style": style, **position}


def _score_plot(history: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the geometry of the plot: each comparison's score and interval, and the score in training."""
    ends = [
        value
        for point in history
        for value in (*(point["interval"] or ()), point["score"], point["trained_score"])
        if value is not None
    ]
    low, high = min(ends), max(ends)
    margin = (high - low) * 0.08 or abs(high) * 0.08 or 1.0
    low, high = low - margin, high + margin

    def y(value: float) -> float:
        return round(float(_HEIGHT * (high - value) / (high - low)), 1)

    step = max(_STEP, (_WIDTH - _LEFT) // len(history))
    ticks = [
        {"y": y(value), "text": f"{value:.4g}"} for value in (low + margin, (low + high) / 2, high - margin)
    ]
    points = [_point(_LEFT + step * at + step // 2, step, point, y) for at, point in enumerate(history)]
    return {"width": _WIDTH, "height": _HEIGHT, "left": _LEFT, "ticks": ticks, "points": points}


def _point(x: int, step: int, point: Mapping[str, Any], y: Callable[[float], float]) -> dict[str, Any]:
    ends = point["interval"] or (point["score"], point["score"])
    return {
        "title": f"{point['at']}, version {point['version']}, {point['rows']:,} rows: {point['score']:.4g}, "
        f"{point['trained_score']:.4g} in training",
        "verdict": point["verdict"],
        "x": x,
        "start": f"{x - step / 2:.1f}",
        "end": f"{x + step / 2:.1f}",
        "y": y(point["score"]),
        "low": y(ends[0]),
        "high": y(ends[1]),
        "trained": y(point["trained_score"]),
    }
