"""The page about late labels: how a model did on them, now and at earlier looks; HTML and SVG, no script."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from dmls_core.monitoring.page import html_page, sentence

PLOTTED = 40
"""Comparisons that are drawn, the latest."""

_WIDTH, _HEIGHT, _LEFT, _STEP = 820, 220, 60, 18


def decay_page(document: Mapping[str, Any], rule: str) -> str:
    """Return the page.

    Args:
        document: content of ``decay.json``.
        rule: when a model has decayed, in words.
    """
    decayed = document["verdict"] == "decayed"
    history = document["history"][-PLOTTED:]
    met = f"{document['met']:,} of {document['labels']:,} labels belong to logged answers"
    parts = [
        f'<p class="verdict {"drifted" if decayed else ""}">{escape(sentence(document["message"]))}</p>',
        f'<p class="muted">{met}, {escape(document["at"])}</p>',
        *(f"<p>{escape(note)}</p>" for note in document["notes"]),
        f"<h2>Versions</h2>{_table(document['versions'])}",
        f"<p class='muted'>{escape(rule)}</p>",
        f"<h2>Over time</h2><p class='muted'>Score at each look, with its 95 % interval; grey: at training."
        f"</p>{_plot(history)}"
        if history
        else "",
    ]
    return html_page(f"Late labels of {document['team']}/{document['job']}", parts)


def _table(versions: Sequence[Mapping[str, Any]]) -> str:
    rows = "".join(
        f'<tr><td>{one["version"]}</td><td class="{"drifted" if one["verdict"] == "decayed" else ""}">'
        f'{one["verdict"]}</td><td>{escape(one["metric"])}</td><td class="n">{one["rows"]:,}</td>'
        f'<td class="n">{_score(one["score"], one["interval"])}</td>'
        f'<td class="n">{_score(one["trained_score"], one["trained_interval"])}</td>'
        f'<td class="n">{_small(one["p_value"])}</td></tr>'
        for one in versions
    )
    return (
        "<table><thead><tr><th>version</th><th></th><th>metric</th><th>labelled answers</th><th>score</th>"
        f"<th>at training</th><th>p</th></tr></thead><tbody>{rows}</tbody></table>"
    )


def _plot(history: Sequence[Mapping[str, Any]]) -> str:
    """Draw each comparison as a point with its interval, beside the score at training."""
    ends = [
        value
        for one in history
        for value in (*(one["interval"] or ()), one["score"], one["trained_score"])
        if value is not None
    ]
    low, high = min(ends), max(ends)
    room = (high - low) * 0.08 or abs(high) * 0.08 or 1.0
    low, high = low - room, high + room

    def y(value: float) -> float:
        return round(float(_HEIGHT * (high - value) / (high - low)), 1)

    step = max(_STEP, (_WIDTH - _LEFT) // max(1, len(history)))
    marks = "".join(
        f'<text x="{_LEFT - 6}" y="{y(value) + 4}" text-anchor="end">{value:.4g}</text>'
        f'<path d="M{_LEFT} {y(value)}H{_WIDTH}" stroke="currentColor" opacity=".15"/>'
        for value in (low + room, (low + high) / 2, high - room)
    )
    points = "".join(_point(_LEFT + step * at + step // 2, step, one, y) for at, one in enumerate(history))
    return (
        f'<svg viewBox="0 -8 {_WIDTH} {_HEIGHT + 16}" width="{_WIDTH}" height="{_HEIGHT + 16}" '
        'font-size="11" fill="currentColor" role="img"><title>Score on labelled answers over time</title>'
        f"{marks}{points}</svg>"
    )


def _point(x: int, step: int, one: Mapping[str, Any], y: Callable[[float], float]) -> str:
    ends = one["interval"] or (one["score"], one["score"])
    told = f"{one['at']}, version {one['version']}, {one['rows']:,} rows: {one['score']:.4g}"
    then = y(one["trained_score"])
    colour = "#b35900" if one["verdict"] == "decayed" else "#0969da"
    return (
        f"<g><title>{escape(told)}, {one['trained_score']:.4g} at training</title>"
        f'<line x1="{x - step / 2:.1f}" x2="{x + step / 2:.1f}" y1="{then}" y2="{then}" stroke="#8c959f" '
        f'stroke-width="3"/><line x1="{x}" x2="{x}" y1="{y(ends[0])}" y2="{y(ends[1])}" stroke="{colour}"/>'
        f'<circle cx="{x}" cy="{y(one["score"])}" r="4" fill="{colour}"/></g>'
    )


def _score(score: float | None, interval: Sequence[float] | None) -> str:
    if score is None:
        return ""
    return f"{score:.4g}" + (f" ({interval[0]:.4g} to {interval[1]:.4g})" if interval else "")


def _small(value: float | None) -> str:
    return "" if value is None else f"{value:.2g}"
