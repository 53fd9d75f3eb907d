"""Pieces of HTML. Whatever comes in is escaped here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

LONGEST = 60
"""Characters of a name that are shown."""

SETTING = 24
"""Characters of a setting that are shown."""

WIDEST = 80
"""Characters of all names above a matrix: where they are more, the rows' numbers stand there."""


class Shown(str):
    """A number that is written already: it stands to the right, as numbers do."""

    __slots__ = ()


def number(value: float) -> str:
    """Write a number for people: about five digits, since more tell nothing."""
    if isinstance(value, int):
        return f"{value:,}"
    if not math.isfinite(value):
        return "not defined"
    size = abs(value)
    if size and (size < 0.1 or size >= 1e10):
        return f"{value:.4g}"
    return f"{value:,.{decimals(size)}f}"


def decimals(size: float) -> int:
    """Return how many digits after the point a number of that size is worth."""
    return max(0, min(4, 4 - math.floor(math.log10(size)))) if size else 4


def brief(value: float) -> str:
    """Write a setting for people: of many digits four are shown, and 1.0 is not the integer 1."""
    text = f"{value:,.4g}"
    return text if "e" in text or "." in text or not math.isfinite(value) else f"{text}.0"


def setting(value: object) -> object:
    """Return a setting as a table shows it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return cut("none" if value is None else value, SETTING)
    return Shown(value if isinstance(value, int) else brief(value))


def cut(text: object, longest: int = LONGEST) -> str:
    """Shorten a text in its middle: names that begin alike often end otherwise. It is not escaped yet."""
    shown = str(text)
    if len(shown) <= longest:
        return shown
    end = (longest - 1) // 2
    return f"{shown[: longest - 1 - end]}…{shown[-end:]}"


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
        f'<th scope="col"{_class("n" if right else "")}>{escape(cut(name))}</th>'
        for name, right in zip(header, numeric, strict=True)
    )
    bare = not any(header)
    body = "".join(
        f"<tr{_class('best' if at == marked else '')}>"
        + "".join(_cell(cell, numeric[place], head=bare and not place) for place, cell in enumerate(row))
        + "</tr>"
        for at, row in enumerate(rows)
    )
    above = "" if bare else f"<thead><tr>{head}</tr></thead>"
    return f'<div class="scroll"><table{_class(kind)}>{above}<tbody>{body}</tbody></table></div>'


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float | Shown) and not isinstance(value, bool))


def _cell(value: object, right: bool, *, head: bool) -> str:
    if value is None:
        return "<td></td>"
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    text = number(value) if plain else escape(cut(value, 600))  # type: ignore[arg-type]
    if head:
        return f'<th scope="row">{text}</th>'
    return f'<td class="n">{text}</td>' if right else f"<td>{text}</td>"


def matrix(labels: Sequence[str], counts: Sequence[Sequence[int]]) -> str:
    """Return a square table whose cells are the fuller of colour the larger their share of the row."""
    numbered = sum(min(len(label), 16) for label in labels) > WIDEST
    names = [f"{at} {cut(label, 30)}" if numbered else cut(label, 24) for at, label in enumerate(labels, 1)]
    above = [str(at) if numbered else cut(label, 16) for at, label in enumerate(labels, 1)]
    head = "".join(
        f'<th scope="col" title="{escape(label)}">{escape(name)}</th>'
        for label, name in zip(labels, above, strict=True)
    )
    body = ""
    for at, (label, row) in enumerate(zip(labels, counts, strict=True)):
        total = max(1, sum(row))
        cells = "".join(
            _shaded(count, count / total, "good" if at == column else "bad")
            for column, count in enumerate(row)
        )
        body += f'<tr><th scope="row" title="{escape(label)}">{escape(names[at])}</th>{cells}</tr>'
    return (
        '<div class="scroll"><table class="matrix"><thead><tr><th scope="col">true \\ predicted</th>'
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
