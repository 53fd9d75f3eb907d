"""Pieces of HTML. Whatever comes in is escaped here."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape


def number(value: float) -> str:
    """Write a number for people: four decimals at most, no noise."""
    return str(value) if isinstance(value, int) else f"{value:.4g}" if abs(value) < 0.1 else f"{value:,.4f}"


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table; numbers stand to the right."""
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f'<td class="n">{number(value)}</td>'
    return f"<td>{escape(str(value))}</td>"


def heat_table(labels: Sequence[str], counts: Sequence[Sequence[int]]) -> str:
    """Return a square table whose cells are the darker the larger their share of the row."""
    head = "".join(f"<th>{escape(label)}</th>" for label in labels)
    body = ""
    for label, row in zip(labels, counts, strict=True):
        total = max(1, sum(row))
        cells = "".join(
            f'<td class="n" style="background:rgba(9,105,218,{count / total * 0.6:.2f})">{count}</td>'
            for count in row
        )
        body += f"<tr><th>{escape(label)}</th>{cells}</tr>"
    return f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table>"


def bars(pairs: Sequence[tuple[str, float]]) -> str:
    """Return a horizontal bar for each (name, share) as inline SVG."""
    largest = max((share for _, share in pairs), default=0) or 1
    rows = "".join(
        f'<g transform="translate(245 {22 * row})" fill="currentColor">'
        f'<text x="-10" y="16" text-anchor="end">{escape(_cut(name))}</text>'
        f'<rect y="4" width="{450 * share / largest:.1f}" height="15" fill="#0969da"/>'
        f'<text x="{450 * share / largest + 6:.1f}" y="16">{share:.1%}</text></g>'
        for row, (name, share) in enumerate(pairs)
    )
    height = 22 * len(pairs) + 4
    return f'<svg viewBox="0 0 760 {height}" width="760" height="{height}" font-size="13">{rows}</svg>'


def _cut(name: str) -> str:
    return name if len(name) <= 32 else name[:31] + "…"
