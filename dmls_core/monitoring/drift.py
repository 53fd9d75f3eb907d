"""The outcome of a comparison, and its JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from dmls_core.monitoring.profile import Column, Kind, Role

SCHEMA = 1

Verdict = Literal["drifted", "steady", "too few rows"]
ColumnVerdict = Literal["drifted", "steady", "too few rows", "absent"]


@dataclass(frozen=True, slots=True)
class ColumnDrift:
    """One column of new data beside the same column of the baseline.

    Attributes:
        old: the baseline.
        new: the new data in the same bins; None where it lacks the column.
        verdict: ``absent`` where the new data lacks the column.
        psi: population stability index; None where nothing was compared.
        p_value: of the test that both are samples of one distribution.
        q_value: the same, corrected for the number of columns that were tested.
        change: what changed most, in words.
    """

    old: Column
    new: Column | None
    verdict: ColumnVerdict
    psi: float | None = None
    p_value: float | None = None
    q_value: float | None = None
    change: str = ""

    @property
    def name(self) -> str:
        """The column."""
        return self.old.name

    @property
    def role(self) -> Role:
        """What it is to the model."""
        return self.old.role

    @property
    def kind(self) -> Kind:
        """Whether it holds numbers or categories."""
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
class Drift:
    """New data beside the baseline.

    Attributes:
        verdict: ``drifted`` if any column has.
        rows: of the new data.
        baseline_rows: of the data that the model was trained on.
        threshold: population stability index from which a column has drifted.
        columns: drifted ones first, then by falling index.
        at: time of the comparison, ISO 8601 in UTC.
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
        """The columns of which something can be said."""
        return tuple(column for column in self.columns if column.psi is not None)

    @property
    def absent(self) -> tuple[str, ...]:
        """The features that the new data lacks."""
        return tuple(c.name for c in self.columns if c.verdict == "absent" and c.role == "feature")

    @property
    def gist(self) -> str:
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
    def from_fields(cls, data: Mapping[str, Any]) -> Drift:
        """Return the comparison of which ``dataclasses.asdict`` gave this."""
        columns = (
            ColumnDrift(
                **{
                    **column,
                    "old": Column.from_json(column["old"]),
                    "new": Column.from_json(column["new"]) if column["new"] else None,
                }
            )
            for column in data["columns"]
        )
        return cls(**{**data, "columns": tuple(columns)})

    def as_json(self, **about: str) -> dict[str, Any]:
        """Return the content of ``drift.json``.

        Args:
            about: whose data it is: ``team``, ``job``, ``run_key`` and the like.
        """
        return {
            "schema": SCHEMA,
            **about,
            "verdict": self.verdict,
            "message": self.gist,
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
    """Return the time as a comparison notes it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _label(column: ColumnDrift) -> str:
    return (
        column.name
        if column.role == "feature"
        else f"{column.role} {column.name}".replace("prediction prediction", "prediction")
    )


def _facts(column: Column) -> dict[str, Any]:
    return {
        "rows": column.rows,
        "missing": column.missing / column.rows if column.rows else None,
        "mean": column.mean,
    }
