"""Write the lists that pages written by hand have of the code: extension points, metrics and benchmarks.

``--check`` only reports whether the pages are up to date.
"""

from __future__ import annotations

import ast
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, patch

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from dmls_core import extensions, testing
from dmls_core.monitoring.prometheus import (
    COUNTER_HELP,
    decay_metrics,
    drift_metrics,
    exposition,
    process_metrics,
)
from dmls_core.store import ProcessFailure, ProcessFailures

ROOT = Path(__file__).parents[1]

NOW = "2026-01-01T00:00:00+00:00"
COLUMN = SimpleNamespace(role="feature", name="a", psi=0.0)
DRIFT: Any = SimpleNamespace(verdict="steady", rows=1, compared=[COLUMN], drifted=[], at=NOW)
VERSION = {"version": 1, "metric": "accuracy", "rows": 1, "score": 1.0, "trained_score": 1.0}
DECAY = {"team": "t", "job": "j", "verdict": "steady", "at": NOW, "versions": [VERSION]}
PROCESSES = [("t.j", ProcessFailures((ProcessFailure("t.j", "triton:8000", NOW),)))]
RUNS = [("dmls.t.j", "success", 1, 1.0), ("dmls.t.j", "running", 1, None)]
"""What the functions export here: one row of everything."""


def extension_points() -> str:
    """Return the groups of entry points, each with its guide, what the guide begins with, and its suite."""
    rows = []
    for group in extensions.GROUPS:
        name = group.removeprefix("dmls.")
        guide = f"{name.replace('_', '-')}.md"
        first = (ROOT / "docs/extending" / guide).read_text().split("\n\n")[1]
        sentence = " ".join(re.split(r"(?<=\.)\s", first)[0].split())
        suites = [suite for suite, module in testing._MODULES.items() if module == name]  # noqa: SLF001
        suite = f"`dmls_core.testing.{suites[0]}`" if suites else ""
        rows.append((f"[`{group}`]({guide})", sentence, suite))
    return table(("entry points and guide", "what they register", "suite"), rows)


def metrics() -> str:
    """Return the metrics of DMLS for Prometheus."""
    rows = [(f"`dmls_{name}_total`", "counter", "", text) for name, text in COUNTER_HELP.items()]
    for metric in families():
        labels = sorted({label for sample in metric.samples for label in sample.labels} - {"team", "job"})
        names = ", ".join(f"`{label}`" for label in labels)
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        rows.append((f"`{name}`", metric.type, names, metric.documentation))
    return table(("metric", "type", "labels", "meaning"), rows)


def families() -> Iterator[Metric]:
    """Yield the metrics that are not in ``COUNTER_HELP``."""
    yield from text_string_to_metric_families(drift_metrics(DRIFT, "t", "j", "data"))
    yield from text_string_to_metric_families(decay_metrics(DECAY))
    with patch("dmls_core.monitoring.prometheus.all_process_failures", lambda _: PROCESSES):
        yield from text_string_to_metric_families(exposition(process_metrics(Mock())))
    os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="dmls-docs-"))
    from dmls_core.airflow import metrics_endpoint

    with patch.object(metrics_endpoint.database, "create_session", _session):
        yield from metrics_endpoint.run_metrics()


@contextmanager
def _session() -> Iterator[Any]:
    """Stand in for Airflow's database."""
    yield SimpleNamespace(execute=lambda _: RUNS)


def benchmarks() -> str:
    """Return the scripts in tests/bench, each with the first sentence of its docstring."""
    rows = []
    for path in sorted((ROOT / "tests/bench").glob("*.py")):
        code = path.read_text()
        if '__name__ == "__main__"' in code:
            sentence = re.split(r"(?<=[.?])\s", ast.get_docstring(ast.parse(code)) or "")[0]
            rows.append((f"`{path.name}`", " ".join(sentence.split()).replace("``", "`")))
    return table(("script in `tests/bench/`", "measures"), rows)


def table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a table in Markdown."""
    lines = ["| " + " | ".join(cells) + " |" for cells in (heads, ("---",) * len(heads), *rows)]
    return "\n".join(lines)


LISTS: dict[str, dict[str, Callable[[], str]]] = {
    "CONTRIBUTING.md": {"benchmarks": benchmarks},
    "docs/extending/index.md": {"extensions": extension_points},
    "docs/reference/metrics.md": {"metrics": metrics},
}
"""Page -> the lists in it, each between two comments."""


def page(path: Path, lists: dict[str, Callable[[], str]]) -> str:
    """Return a page with the lists of today's code."""
    text = path.read_text()
    for name, write in lists.items():
        begin, end = f"<!-- {name}: written by docs/lists_reference.py -->", f"<!-- end of {name} -->"
        head, _, rest = text.partition(begin)
        text = f"{head}{begin}\n\n{write()}\n\n{end}{rest.partition(end)[2]}"
    return text


if __name__ == "__main__":
    pages = {ROOT / name: page(ROOT / name, lists) for name, lists in LISTS.items()}
    if "--check" in sys.argv:
        stale = [path.name for path, text in pages.items() if path.read_text() != text]
        sys.exit(f"out of date: {', '.join(stale)}: run `make docs`" if stale else 0)
    for path, text in pages.items():
        path.write_text(text)
