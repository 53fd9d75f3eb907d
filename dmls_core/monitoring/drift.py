"""DriftResult: compare new data with the profile of a model's training data, column by column.

A column has drifted if both of these hold:

* Its population stability index reaches the threshold, so the change is large enough to matter. With many
  rows every change is significant, so a test alone would flag every column.
* Tests reject that both samples come from one distribution, at a false discovery rate of ``ALPHA`` over all
  columns (Benjamini and Hochberg, 1995). With few rows the index is large by chance (about bins / rows), and
  with many columns some p-values are small by chance.

The tests of a column are Pearson's chi-squared test of its bins, and exact tests of the shares that may be
rare, where the chi-squared test is unreliable: Fisher's test of the missing values and of the values outside
all bins, and a binomial test of each rare bin. The smallest p-value counts, times the number of tests.

Without drift, about ``ALPHA`` of the comparisons of few rows report drift, however many columns there are,
and fewer of the comparisons of many rows. The tests assume independent rows: a batch that covers one hour of
a day, or one customer, differs from the training data although nothing has drifted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dmls_core.monitoring.profile import Kind, Profile, ProfileColumn, Role, Values, commonest, recount

_SCHEMA = 1

ALPHA = 0.001

MIN_ROWS = 100

_MIN_BASELINE_ROWS = 50

_MIN_COUNT = 5
"""Expected rows of a bin in the smaller sample, from which the chi-squared test is reliable."""

_FLOOR = 0.001
"""Smallest share of a bin: the index of an empty bin would be infinite."""

Key = tuple[Role, str]
Counts = NDArray[np.int64]

Verdict = Literal["drifted", "steady", "too few rows"]
ColumnVerdict = Literal["drifted", "steady", "too few rows", "absent"]


@dataclass(frozen=True, slots=True)
class ColumnDrift:
    """One column of new data compared with the same column of the baseline.

    Attributes:
        old: the baseline.
        new: the new data in the same bins; None if it lacks the column.
        verdict: ``absent`` if the new data lacks the column.
        psi: population stability index; None if the column was not compared.
        p_value: of the hypothesis that both are samples of one distribution.
        q_value: the p-value, corrected for the number of columns.
        change: the largest change, in words.
    """

    old: ProfileColumn
    new: ProfileColumn | None
    verdict: ColumnVerdict
    psi: float | None = None
    p_value: float | None = None
    q_value: float | None = None
    change: str = ""

    @property
    def name(self) -> str:
        """Name of the column."""
        return self.old.name

    @property
    def role(self) -> Role:
        """Feature, target or prediction."""
        return self.old.role

    @property
    def kind(self) -> Kind:
        """Numbers or categories."""
        return self.old.kind

    def as_json(self) -> dict[str, Any]:
        """Return the column as plain JSON data."""
        return {
            "name": self.name,
            "role": self.role,
            "kind": self.kind,
            "verdict": self.verdict,
            "psi": self.psi,
            "p_value": self.p_value,
            "q_value": self.q_value,
            "change": self.change,
            "baseline": _facts(self.old),
            "new": _facts(self.new) if self.new else None,
        }


@dataclass(frozen=True, slots=True)
class DriftResult:
    """New data compared with the baseline.

    Attributes:
        verdict: ``drifted`` if any column has drifted.
        threshold: population stability index from which a column has drifted.
        columns: drifted columns first, then by decreasing index.
        at: ISO 8601 in UTC.
    """

    verdict: Verdict
    rows: int
    baseline_rows: int
    threshold: float
    columns: tuple[ColumnDrift, ...]
    at: str

    @property
    def drifted(self) -> tuple[ColumnDrift, ...]:
        """The columns that drifted."""
        return tuple(column for column in self.columns if column.verdict == "drifted")

    @property
    def compared(self) -> tuple[ColumnDrift, ...]:
        """The columns that were compared."""
        return tuple(column for column in self.columns if column.psi is not None)

    @property
    def absent(self) -> tuple[str, ...]:
        """The features that the new data lacks."""
        return tuple(c.name for c in self.columns if c.verdict == "absent" and c.role == "feature")

    @property
    def summary(self) -> str:
        """The outcome in one line."""
        if self.verdict == "too few rows":
            return f"too few rows to compare: {self.rows:,} with {self.baseline_rows:,}"
        if not self.drifted:
            return f"no drift in {self.rows:,} rows and {len(self.compared)} columns"
        shown = ", ".join(f"{_label(column)} ({column.psi:.2f})" for column in self.drifted[:3])
        more = f" and {len(self.drifted) - 3} more" if len(self.drifted) > 3 else ""
        count = f"{len(self.drifted)} of {len(self.compared)} columns drifted"
        return f"{count} in {self.rows:,} rows: {shown}{more}"

    @classmethod
    def from_fields(cls, data: Mapping[str, Any]) -> DriftResult:
        """Rebuild a comparison from the result of ``dataclasses.asdict``."""
        columns = (
            ColumnDrift(
                **{
                    **column,
                    "old": ProfileColumn.from_json(column["old"]),
                    "new": ProfileColumn.from_json(column["new"]) if column["new"] else None,
                }
            )
            for column in data["columns"]
        )
        return cls(**{**data, "columns": tuple(columns)})

    def as_json(self, **context: str) -> dict[str, Any]:
        """Return the content of ``drift.json``; ``context`` adds keys such as ``team`` and ``run_key``."""
        return {
            "schema": _SCHEMA,
            **context,
            "verdict": self.verdict,
            "message": self.summary,
            "rows": self.rows,
            "baseline_rows": self.baseline_rows,
            "threshold": self.threshold,
            "compared": len(self.compared),
            "drifted": len(self.drifted),
            "absent": list(self.absent),
            "max_psi": max((column.psi or 0.0 for column in self.compared), default=None),
            "columns": [column.as_json() for column in self.columns],
            "at": self.at,
        }


def now() -> str:
    """Return the current time in ISO 8601, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _label(column: ColumnDrift) -> str:
    return (
        column.name
        if column.role == "feature"
        else f"{column.role} {column.name}".replace("prediction prediction", "prediction")
    )


def _facts(column: ProfileColumn) -> dict[str, Any]:
    return {
        "rows": column.rows,
        "missing": column.missing / column.rows if column.rows else None,
        "mean": column.mean,
    }


def compare(baseline: Profile, values: Mapping[Key, Values], rows: int, threshold: float) -> DriftResult:
    """Compare new data with the profile of the training data.

    ``values`` are the new data's columns by role and name. Columns of the baseline that they lack are
    ``absent``.
    """
    columns = [_measure(column, values.get((column.role, column.name))) for column in baseline.columns]
    tested = [column for column in columns if column.p_value is not None]
    tested_columns = iter(_with_verdicts(tested, threshold))
    columns = [next(tested_columns) if column.p_value is not None else column for column in columns]
    columns.sort(key=lambda column: (column.verdict != "drifted", -(column.psi or 0.0)))
    verdict: Verdict = "steady" if tested else "too few rows"
    if any(column.verdict == "drifted" for column in columns):
        verdict = "drifted"
    return DriftResult(
        verdict=verdict,
        rows=rows,
        baseline_rows=baseline.rows,
        threshold=threshold,
        columns=tuple(columns),
        at=now(),
    )


def _measure(old: ProfileColumn, values: Values | None) -> ColumnDrift:
    if values is None:
        return ColumnDrift(old, None, "absent")
    new = recount(old, values)
    if new.rows < MIN_ROWS or old.rows < _MIN_BASELINE_ROWS:
        return ColumnDrift(old, new, "too few rows")
    psi, p_value = measure_change(old, new)
    return ColumnDrift(old, new, "steady", psi, p_value, change=_change(old, new, values))


def _with_verdicts(tested: list[ColumnDrift], threshold: float) -> list[ColumnDrift]:
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


def measure_change(old: ProfileColumn, new: ProfileColumn) -> tuple[float, float]:
    """Return the population stability index of a column, and the p-value that both have one distribution.

    A bin is rare by both samples together: one of them alone would select its chance peaks. A rare bin is
    merged with its neighbors, unless its share has changed significantly: if the new data is much larger, a
    bin that holds half of the baseline is rare once it is empty, and would vanish in the bin that is full.

    By construction the baseline has no number outside its own range. The probability that another sample of
    the same distribution has ``k`` there is ``k + 1`` times the result of Fisher's test: there are ``k + 1``
    ways to divide them between both ends.
    """
    from scipy.stats import binom, chi2_contingency, fisher_exact

    rows = np.array([old.rows, new.rows])
    bins = np.array([old.counts, new.counts], dtype=np.int64)
    specials = np.array([[old.other, old.missing], [new.other, new.missing]], dtype=np.int64)

    expected = bins.sum(axis=0) * rows.min() / rows.sum()
    rare = np.flatnonzero(expected < _MIN_COUNT)
    # Without drift, each row of a bin is of the new data with this probability.
    chance = binom(bins[:, rare].sum(axis=0), rows[1] / rows.sum())
    tails = np.minimum(chance.cdf(bins[1, rare]), chance.sf(bins[1, rare] - 1))
    rare_p_values = 2 * len(rare) * tails
    changed = rare[rare_p_values <= ALPHA]
    groups = _merged(expected, changed)
    merged = np.array([bins[:, group].sum(axis=1) for group in groups], dtype=np.int64).reshape(-1, 2).T

    p_values = [rare_p_values.min()] if rare.size else []
    common = merged[:, [expected[group].sum() >= _MIN_COUNT for group in groups]]
    if common.shape[1] > 1 and common.sum(axis=1).all():
        p_values.append(chi2_contingency(common, correction=False).pvalue)
    ways_outside = 1 + new.other if old.kind == "number" else 1
    for special, ways in zip(specials.T, (ways_outside, 1), strict=True):
        if special.any():
            p_values.append(ways * fisher_exact([special, rows - special]).pvalue)
    p_value = min(1.0, len(p_values) * min(p_values)) if p_values else 1.0
    return _stability_index(*np.hstack([merged, specials])), float(p_value)


def _merged(expected: NDArray[np.float64], changed: NDArray[np.intp]) -> list[list[int]]:
    """Group neighboring bins until each group has enough expected rows; bins in ``changed`` stay alone."""
    groups: list[list[int]] = [[]]
    for at in np.setdiff1d(np.arange(len(expected)), changed):
        if expected[groups[-1]].sum() >= _MIN_COUNT:
            groups.append([])
        groups[-1].append(at)
    if len(groups) > 1 and expected[groups[-1]].sum() < _MIN_COUNT:
        groups[-2:] = [groups[-2] + groups[-1]]
    groups = [*filter(None, groups), *([at] for at in changed)]
    return groups if len(groups) > 1 else [[at] for at in range(len(expected))]


def _stability_index(before: Counts, after: Counts) -> float:
    """Return the population stability index: the sum over bins of (q - p) ln(q / p), p and q shares of rows.

    This is the symmetrized Kullback-Leibler divergence. Common interpretation (Siddiqi, Credit Risk
    Scorecards, 2006): below 0.1 no change, 0.1 to 0.25 some change, above that a shift.
    """
    p, q = (np.maximum(counts / counts.sum(), _FLOOR) for counts in (before, after))
    return float(np.sum((q - p) * np.log(q / p)))


def _change(old: ProfileColumn, new: ProfileColumn, values: Values) -> str:
    """Describe the bin that contributes most to the index."""
    before, after = (np.array([*c.counts, c.other, c.missing]) / c.rows for c in (old, new))
    p, q = (np.maximum(shares, _FLOOR) for shares in (before, after))
    most = int(np.argmax((q - p) * np.log(q / p)))
    shares = f"{before[most]:.1%} → {after[most]:.1%}"
    if most == len(old.counts) + 1:
        return f"missing {shares}"
    if old.kind == "number":
        outside = f", outside the baseline's range {shares}" if most == len(old.counts) else ""
        return f"mean {_number(old.mean)} → {_number(new.mean)}{outside}"
    if most == len(old.counts):
        names = ", ".join(repr(text) for text in commonest(values, old.categories, 3))
        return f"other categories {shares}" + (f", such as {names}" if names else "")
    return f"{old.categories[most]!r} {shares}"


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"
