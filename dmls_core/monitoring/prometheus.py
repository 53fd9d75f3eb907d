"""A comparison as Prometheus reads it (text exposition format 0.0.4)."""

from __future__ import annotations

from datetime import datetime

from dmls_core.monitoring.drift import ColumnDrift, Drift
from dmls_core.monitoring.families import escaped

COLUMNS = 100
"""Columns that have series of their own, the most drifted ones: each series costs a Prometheus memory."""

_METRICS = {
    "dmls_drift_detected": "1 if any column of the latest data has drifted from the training data.",
    "dmls_drift_rows": "Rows of the latest data that was compared.",
    "dmls_drift_columns_compared": "Columns that were compared.",
    "dmls_drift_columns_drifted": "Columns that have drifted.",
    "dmls_drift_timestamp_seconds": "When the latest data was compared.",
}


def metrics_text(drift: Drift, team: str, job: str, source: str) -> str:
    """Return the metrics of one job's latest comparison.

    Args:
        drift: the comparison.
        team: of the job.
        job: its name.
        source: what was compared: ``requests`` or ``data``.
    """
    labels = f'team="{escaped(team)}",job="{escaped(job)}",source="{source}"'
    values = (
        int(drift.verdict == "drifted"),
        drift.rows,
        len(drift.compared),
        len(drift.drifted),
        int(datetime.fromisoformat(drift.at).timestamp()),
    )
    lines = []
    for (name, text), value in zip(_METRICS.items(), values, strict=True):
        lines += [f"# HELP {name} {text}", f"# TYPE {name} gauge", f"{name}{{{labels}}} {value}"]
    name = "dmls_drift_psi"
    lines += [f"# HELP {name} Population stability index of a column.", f"# TYPE {name} gauge"]
    lines += [f"{name}{{{labels},{_column(column)}}} {column.psi:.6g}" for column in drift.compared[:COLUMNS]]
    return "\n".join(lines) + "\n"


def _column(column: ColumnDrift) -> str:
    return f'role="{column.role}",column="{escaped(column.name)}"'
