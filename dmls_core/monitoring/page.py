"""The drift page: one HTML file without scripts that needs nothing from the network.

Everything that comes from data is escaped, and the page forbids itself whatever is not on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from dmls_core.monitoring.bars import bin_labels, paired_bars
from dmls_core.monitoring.comparison import ALPHA, MIN_ROWS
from dmls_core.monitoring.drift import ColumnDrift, Drift

LISTED = 200
"""Columns in the table."""

PLOTTED = 30
"""Columns with a plot: the drifted ones first."""

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#1b1f24}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}h3{font-size:1rem;margin:1.2rem 0 .2rem}
table{border-collapse:collapse}th,td{padding:.2rem .7rem;border-bottom:1px solid #d8dee4;text-align:left}
td.n{text-align:right;font-variant-numeric:tabular-nums}td:first-child{min-width:10rem}
td:first-child,td:last-child,h3{overflow-wrap:anywhere}
.verdict{font-size:1.3rem;font-weight:600}.drifted{color:#b35900}.muted{color:#59636e}svg{max-width:100%}
.old{fill:#8c959f}.new{fill:#0969da}
@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}th,td{border-color:#30363d}
.muted{color:#9198a1}.drifted{color:#f0a050}}
"""

_RULE = (
    "A column has drifted if its population stability index reaches {threshold:g} and a test (chi-squared of "
    "the bins, Fisher's exact test of missing values and of values that the baseline has no bin for) says at "
    "a false discovery rate of {alpha:g} over all columns that the change is no chance. Fewer than {rows} "
    "rows are not judged."
)


def drift_page(drift: Drift, title: str) -> str:
    """Return the page.

    Args:
        drift: the comparison.
        title: whose data it is.
    """
    shown = [column for column in drift.compared[:PLOTTED] if column.new]
    size = f"{drift.rows:,} rows against {drift.baseline_rows:,} that the model was trained on"
    parts = [
        f'<p class="verdict {"drifted" if drift.drifted else ""}">{escape(sentence(drift.gist))}</p>',
        f'<p class="muted">{size}, {escape(drift.at)}</p>',
        _absent(drift.absent),
        f"<h2>Columns</h2>{_table(drift.columns)}",
        f"<p class='muted'>{_RULE.format(threshold=drift.threshold, alpha=ALPHA, rows=MIN_ROWS)}</p>",
        "<h2>Before and now</h2><p class='muted'>Share of the rows in each bin of the training data: grey "
        "then, blue now.</p>" + "".join(map(_plot, shown))
        if shown
        else "",
    ]
    return html_page(f"Drift of {title}", parts)


def html_page(title: str, parts: Sequence[str]) -> str:
    """Return a page of parts, which are HTML, below a heading, which is text."""
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body><h1>{escape(title)}</h1>{''.join(parts)}</body></html>\n"
    )


def sentence(text: str) -> str:
    """Return a text with a capital letter in front."""
    return text[:1].upper() + text[1:]


def _absent(names: Sequence[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return (
        f"<p>Not in the new data, so not compared: {escape(', '.join(names[:20]))}{more}. Predictions are "
        "compared only where all features are there.</p>"
    )


def _table(columns: Sequence[ColumnDrift]) -> str:
    rows = "".join(
        f'<tr><td>{escape(column.name)}</td><td>{column.role}</td><td class="{column.verdict}">'
        f'{column.verdict}</td><td class="n">{_number(column.psi)}</td>'
        f'<td class="n">{_number(column.q_value)}</td><td>{escape(column.change)}</td></tr>'
        for column in columns[:LISTED]
    )
    left = len(columns) - LISTED
    note = f"<p class='muted'>{left:,} more columns are in drift.json.</p>" if left > 0 else ""
    return (
        "<table><thead><tr><th>column</th><th>role</th><th></th><th>index</th><th>corrected p</th>"
        f"<th>largest change</th></tr></thead><tbody>{rows}</tbody></table>{note}"
    )


def _plot(column: ColumnDrift) -> str:
    if column.new is None:
        return ""
    pairs = [
        (label, old / column.old.rows, new / column.new.rows)
        for label, old, new in zip(
            bin_labels(column.old),
            (*column.old.counts, column.old.other, column.old.missing),
            (*column.new.counts, column.new.other, column.new.missing),
            strict=True,
        )
        if old or new
    ]
    return f"<h3>{escape(column.name)} <span class='muted'>{column.role}</span></h3>{paired_bars(pairs)}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}" if value >= 0.001 or value == 0 else f"{value:.0e}"
