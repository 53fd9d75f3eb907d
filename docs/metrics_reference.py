"""Write the table of DMLS's metrics into docs/reference/metrics.md, from the code that exports them.

``--check`` only reports whether the page is up to date.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from dmls_core.monitoring.prometheus import COUNTER_HELP, decay_metrics, drift_metrics

PAGE = Path(__file__).parent / "reference" / "metrics.md"
BEGIN, END = "<!-- metrics: written by docs/metrics_reference.py -->", "<!-- end of metrics -->"

NOW = "2026-01-01T00:00:00+00:00"
COLUMN = SimpleNamespace(role="feature", name="a", psi=0.0)
DRIFT: Any = SimpleNamespace(verdict="steady", rows=1, compared=[COLUMN], drifted=[], at=NOW)
VERSION = {"version": 1, "metric": "accuracy", "rows": 1, "score": 1.0, "trained_score": 1.0}
DECAY = {"team": "t", "job": "j", "verdict": "steady", "at": NOW, "versions": [VERSION]}
RUNS = [("dmls.t.j", "success", 1, 1.0), ("dmls.t.j", "running", 1, None)]
"""What the functions export here: one row of everything."""


def page() -> str:
    """Return the page with the table of today's code."""
    rows = [f"| `dmls_{name}_total` | counter |  | {text} |" for name, text in COUNTER_HELP.items()]
    rows += [_row(metric) for metric in metrics()]
    table = "\n".join(["| metric | type | labels | meaning |", "| --- | --- | --- | --- |", *rows])
    head, _, rest = PAGE.read_text().partition(BEGIN)
    return f"{head}{BEGIN}\n\n{table}\n\n{END}{rest.partition(END)[2]}"


def metrics() -> Iterator[Metric]:
    """Yield the metrics that are not counters."""
    yield from text_string_to_metric_families(drift_metrics(DRIFT, "t", "j", "data"))
    yield from text_string_to_metric_families(decay_metrics(DECAY))
    os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="dmls-docs-"))
    from dmls_core.airflow import metrics_endpoint

    with patch.object(metrics_endpoint, "create_session", _session):
        yield from metrics_endpoint.run_metrics()


@contextmanager
def _session() -> Iterator[Any]:
    """Stand in for Airflow's database."""
    yield SimpleNamespace(execute=lambda _: RUNS)


def _row(metric: Metric) -> str:
    labels = sorted({label for sample in metric.samples for label in sample.labels} - {"team", "job"})
    return f"| `{metric.name}` | {metric.type} | {', '.join(f'`{name}`' for name in labels)} | {metric.documentation} |"


if __name__ == "__main__":
    new = page()
    if "--check" in sys.argv:
        sys.exit(0 if PAGE.read_text() == new else f"{PAGE} is out of date: run `make docs`")
    PAGE.write_text(new)
