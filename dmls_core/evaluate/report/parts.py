"""Pieces of HTML. Whatever comes in is escaped here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

LONGEST = 60
"""Characters of a name that are shown."""


def number(value: float) -> str:
    """Write a number for people: no more digits than tell something."""
    if isinstance(value, int):
        return f"{value:,}"
    if not math.isfinite(value):
        return "not defined"
    size = abs(value)
    if size and (size < 0.1 or size >= 1e7):
        return f"{value:.4g}"
    return f"{value:,.4f}" if size < 100 else f"{value:,.2f}"


def brief(value: float) -> str:
    """Write a setting for people: 0.5 is 0.5, and of many digits four are shown."""
    return f"{value:,.4g}" if abs(value) < 10_000 else number(value)


def cut(text: object, longest: int = LONGEST) -> str:
    """Shorten a text; it is not escaped yet."""
    shown = str(text)
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def paragraph(text: str, kind: str = "muted") -> str:
    """Return a paragraph of a class of the style sheet."""
    return f'<p class="{kind}">{escape(text)}</p>'


def facts(pairs: Sequence[tuple[str, str]]) -> str:
    """Return names with short values, side by side."""
    body = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in pairs)
    return f'<dl class="facts">{body}</dl>'


def table(
    header: Sequence[str], rows: Sequence[Sequence[object]], *, kind: str = "", marked: int | None = None
) -> str:
    """Return a table; numbers stand to the right.

    Args:
        header: names of the columns.
        rows: the cells.
        kind: class of the table in the style sheet.
        marked: index of the row to point out.
    """
    numeric = [bool(rows) and all(_is_number(row[at]) for row in rows) for at in range(len(header))]
    head = "".join(
        f"<th{_class('n' if right else '')}>{escape(cut(name))}</th>"
        for name, right in zip(header, numeric, strict=True)
    )
    body = "".join(
        f"<tr{_class('best' if at == marked else '')}>{''.join(map(_cell, row))}</tr>"
        for at, row in enumerate(rows)
    )
    return (
        f'<div class="scroll"><table{_class(kind)}><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(value: object) -> str:
    if value is None:
        return "<td></td>"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f'<td class="n">{number(value)}</td>'
    return f"<td>{escape(cut(value, 600))}</td>"


def matrix(labels: Sequence[str], counts: Sequence[Sequence[int]]) -> str:
    """Return a square table whose cells are the fuller of colour the larger their share of the row."""
    head = "".join(f'<th title="{escape(label)}">{escape(cut(label, 16))}</th>' for label in labels)
    body = ""
    for at, (label, row) in enumerate(zip(labels, counts, strict=True)):
        total = max(1, sum(row))
        cells = "".join(
            _shaded(count, count / total, "good" if at == column else "bad")
            for column, count in enumerate(row)
        )
        body += f'<tr><th title="{escape(label)}">{escape(cut(label, 24))}</th>{cells}</tr>'
    return (
        '<div class="scroll"><table class="matrix"><thead><tr><th>true \\ predicted</th>'
        f"{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _shaded(count: int, share: float, tone: str) -> str:
    if not count:
        return '<td class="zero">0</td>'
    full = round(10 + 50 * share)
    return (
        f'<td style="background:color-mix(in srgb,var(--{tone}) {full}%,transparent)" '
        f'title="{share:.1%} of the row">{count}</td>'
    )


def folded(summary: str, content: str) -> str:
    """Return content that is shown on a click."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"
