"""Two histograms beside one another as inline SVG: no script, a few kilobytes."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from dmls_core.monitoring.profile import Column

MOST = 30
"""Bins drawn, those with the largest shares."""

_HEIGHT, _GROUP, _BAR = 120, 62, 26


def bin_labels(column: Column) -> list[str]:
    """Return what each bin holds, then others and missing values."""
    if column.kind == "category":
        return [*column.categories, "others", "missing"]
    first = [f"{edge:.3g}" for edge in column.edges[:1]]
    return [*first, *(f"≤ {edge:.3g}" for edge in column.edges[1:]), "beyond", "missing"]


def paired_bars(pairs: Sequence[tuple[str, float, float]]) -> str:
    """Return a group of two bars for each bin.

    Args:
        pairs: what the bin holds, its share then and its share now, 0 to 1.
    """
    largest = sorted(range(len(pairs)), key=lambda at: -max(pairs[at][1:]))[:MOST]
    drawn = [pairs[at] for at in sorted(largest)]
    top = max((max(old, new) for _, old, new in drawn), default=0.0) or 1.0
    groups = "".join(
        f'<g transform="translate({_GROUP * at} 0)"><title>{escape(label)}: {old:.2%} then, {new:.2%} now'
        f"</title>{_bar(4, old / top, 'old')}{_bar(4 + _BAR, new / top, 'new')}"
        f'<text x="{4 + _BAR}" y="{_HEIGHT + 14}" text-anchor="middle">{escape(_cut(label))}</text></g>'
        for at, (label, old, new) in enumerate(drawn)
    )
    width, height = _GROUP * max(1, len(drawn)), _HEIGHT + 20
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-size="10" '
        f'fill="currentColor" role="img">{groups}</svg>'
    )


def _bar(x: int, share: float, style: str) -> str:
    height = _HEIGHT * share
    return f'<rect class="{style}" x="{x}" y="{_HEIGHT - height:.1f}" width="{_BAR}" height="{height:.1f}"/>'


def _cut(label: str) -> str:
    return label if len(label) <= 10 else label[:9] + "…"
