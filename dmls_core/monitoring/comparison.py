"""Compare new data with a baseline, column by column.

A column has drifted if two things hold:

* its population stability index reaches the threshold: the change is large enough to matter. With many rows
  every change is significant, so a test alone would flag all;
* tests say that both are not samples of one distribution, at a false discovery rate of ``ALPHA`` over all
  columns tested at once (Benjamini and Hochberg, 1995). With few rows the index is large by chance alone
  (about bins / rows), and with many columns some p-value is small by chance alone.

The tests of a column are Pearson's chi-squared test of its bins, and Fisher's exact test of the share of
missing values and of the share of values that the baseline has no bin for: these are often rare in the
baseline, where the first test would mislead. The smallest p-value counts, times the number of tests.

Where nothing drifted, about ``ALPHA`` of the comparisons of few rows say that something did, however many
columns there are, and fewer of many rows. Rows are taken to be drawn one by one: a batch of one hour of a
day, or of one customer, differs from the training data although nothing drifted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dmls_core.monitoring.drift import ColumnDrift, Drift, Verdict, now
from dmls_core.monitoring.profile import Column, Kind, Profile, Role, Values, commonest, recount

ALPHA = 0.001
"""Largest false discovery rate among the columns of one comparison."""

MIN_ROWS = 100
"""Rows below which new data is not judged."""

MIN_BASELINE_ROWS = 50
"""Rows below which a column of the baseline tells nothing."""

MIN_COUNT = 5
"""Rows of the smaller sample for which a bin is kept apart; rarer bins are put together."""

FLOOR = 0.001
"""A share below this counts as this: the index of an empty bin would be infinite."""

BEYOND, MISSING = -2, -1
"""Where ``cells`` puts the rows that the baseline has no bin for, and those without a value."""

Key = tuple[Role, str]
Counts = NDArray[np.int64]


def compare(baseline: Profile, values: Mapping[Key, Values], rows: int, threshold: float) -> Drift:
    """Compare new data with a baseline.

    Args:
        baseline: what the model was trained on.
        values: the new data's columns by role and name; those of the baseline that are not there are called
            absent.
        rows: of the new data.
        threshold: population stability index from which a column has drifted.
    """
    columns = [_measure(column, values.get((column.role, column.name))) for column in baseline.columns]
    tested = [column for column in columns if column.p_value is not None]
    judged = iter(_judged(tested, threshold))
    columns = [next(judged) if column.p_value is not None else column for column in columns]
    columns.sort(key=lambda column: (column.verdict != "drifted", -(column.psi or 0.0)))
    verdict: Verdict = "steady" if tested else "too few rows"
    if any(column.verdict == "drifted" for column in columns):
        verdict = "drifted"
    return Drift(
        verdict=verdict,
        rows=rows,
        baseline_rows=baseline.rows,
        threshold=threshold,
        columns=tuple(columns),
        at=now(),
    )


def _measure(old: Column, values: Values | None) -> ColumnDrift:
    if values is None:
        return ColumnDrift(old, None, "absent")
    new = recount(old, values)
    if new.rows < MIN_ROWS or old.rows < MIN_BASELINE_ROWS:
        return ColumnDrift(old, new, "too few rows")
    before, after = cells(old, new)
    psi = stability_index(before, after)
    p_value = same_distribution(before, after, old.kind)
    return ColumnDrift(old, new, "steady", psi, p_value, change=_change(old, new, values))


def _judged(tested: list[ColumnDrift], threshold: float) -> list[ColumnDrift]:
    if not tested:
        return []
    from scipy.stats import false_discovery_control

    q_values = false_discovery_control([column.p_value for column in tested], method="bh")
    return [
        replace(
            column,
            q_value=float(q_value),
            verdict="drifted" if q_value <= ALPHA and (column.psi or 0.0) >= threshold else "steady",
        )
        for column, q_value in zip(tested, q_values, strict=True)
    ]


def cells(old: Column, new: Column) -> tuple[Counts, Counts]:
    """Return the rows of both columns in the bins that are compared: the common ones, others, missing.

    Bins too rare for the chi-squared test are put together, with the rarest other one where they still are.
    Which ones is told from both samples together: to look at one alone would pick out its chance peaks.
    """
    before, after = (np.array(column.counts, dtype=np.int64) for column in (old, new))
    total = before + after
    expected = total * (min(old.rows, new.rows) / (old.rows + new.rows))
    order = np.argsort(expected, kind="stable")
    together = int((expected < MIN_COUNT).sum())
    while 0 < together < len(order) and expected[order[:together]].sum() < MIN_COUNT:
        together += 1
    rare, kept = order[:together], order[together:]
    found = [
        np.array([*counts[kept], counts[rare].sum(), column.other, column.missing])
        for counts, column in ((before, old), (after, new))
    ]
    return found[0], found[1]


def stability_index(before: Counts, after: Counts) -> float:
    """Return the population stability index: the sum over bins of (q - p) ln(q / p), p and q shares of rows.

    It is the symmetrised Kullback-Leibler divergence. Usual reading (Siddiqi, Credit Risk Scorecards, 2006):
    below 0.1 no change, 0.1 to 0.25 some, more is a shift. 0.2 is DMLS's default threshold.

    Args:
        before: rows in each bin.
        after: likewise, of the other sample.
    """
    p, q = (np.maximum(counts / counts.sum(), FLOOR) for counts in (before, after))
    return float(np.sum((q - p) * np.log(q / p)))


def same_distribution(before: Counts, after: Counts, kind: Kind) -> float:
    """Return the p-value of both being samples of one distribution.

    Args:
        before: rows in each bin, as ``cells`` returns them.
        after: likewise, of the other sample.
        kind: of the column. The first sample has no number beyond its own range; that the other one has
            ``k`` there has, of samples of one distribution, ``k + 1`` times the probability that Fisher's
            test gives: they may be split in so many ways between the two ends.
    """
    from scipy.stats import chi2_contingency, fisher_exact

    bins = np.stack([before[:BEYOND], after[:BEYOND]])
    bins = bins[:, bins.sum(axis=0) > 0]
    p_values = []
    if bins.shape[1] > 1 and bins.sum(axis=1).all():
        p_values.append(chi2_contingency(bins, correction=False).pvalue)
    for special in (BEYOND, MISSING):
        if before[special] + after[special]:
            table = [[counts[special], counts.sum() - counts[special]] for counts in (before, after)]
            ways = 1 + after[special] if special == BEYOND and kind == "number" else 1
            p_values.append(ways * fisher_exact(table).pvalue)
    return float(min(1.0, len(p_values) * min(p_values))) if p_values else 1.0


def _change(old: Column, new: Column, values: Values) -> str:
    """Say in words which bin adds most to the index."""
    before, after = (np.array([*c.counts, c.other, c.missing]) / c.rows for c in (old, new))
    p, q = (np.maximum(shares, FLOOR) for shares in (before, after))
    most = int(np.argmax((q - p) * np.log(q / p)))
    shares = f"{before[most]:.1%} → {after[most]:.1%}"
    if most == len(old.counts) + 1:
        return f"missing {shares}"
    if old.kind == "number":
        beyond = f", beyond the baseline's range {shares}" if most == len(old.counts) else ""
        return f"mean {_number(old.mean)} → {_number(new.mean)}{beyond}"
    if most == len(old.counts):
        names = ", ".join(repr(text) for text in commonest(values, old.categories, 3))
        return f"other categories {shares}" + (f", such as {names}" if names else "")
    return f"{old.categories[most]!r} {shares}"


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"
