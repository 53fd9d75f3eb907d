"""A comparison as Prometheus reads it (text exposition format 0.0.4)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from dmls_core.monitoring.drift import ColumnDrift, Drift
from dmls_core.monitoring.families import Family, escaped, exposition_text

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


def decay_text(document: Mapping[str, Any]) -> str:
    """Return the metrics of one job's latest comparison of late labels.

    Args:
        document: content of ``decay.json``.
    """
    whose = {"team": document["team"], "job": document["job"]}
    at = datetime.fromisoformat(document["at"]).timestamp()
    detected = Family(
        "dmls_decay_detected", "gauge", "1 if a version does worse on labelled answers than at training."
    ).add(int(document["verdict"] == "decayed"), whose)
    checked = Family("dmls_decay_timestamp_seconds", "gauge", "When labels were last compared.").add(
        at, whose
    )
    rows = Family("dmls_decay_rows", "gauge", "Labelled answers of a version.")
    score = Family("dmls_decay_score", "gauge", "Score of a version on labelled answers.")
    trained = Family("dmls_decay_trained_score", "gauge", "Score of the same version at training.")
    for one in document["versions"]:
        labels = whose | {"version": str(one["version"]), "metric": one["metric"]}
        rows.add(one["rows"], labels)
        if one["score"] is not None:
            score.add(one["score"], labels)
            trained.add(one["trained_score"], labels)
    return exposition_text([detected, checked, rows, score, trained])


def _column(column: ColumnDrift) -> str:
    return f'role="{column.role}",column="{escaped(column.name)}"'
