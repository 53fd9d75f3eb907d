"""Names of metrics in queries of Prometheus."""

from __future__ import annotations

import re

from tests.support.pages import ROOT

TRITON = {
    *("nv_inference_request_success", "nv_inference_request_failure", "nv_inference_count"),
    *("nv_inference_exec_count", "nv_inference_pending_request_count", "nv_inference_request_duration_us"),
    *("nv_inference_queue_duration_us", "nv_inference_compute_infer_duration_us"),
    *("nv_inference_request_summary_us", "nv_inference_queue_summary_us"),
}
"""Of Triton's own metrics, those that its servers of every release have."""


def dmls_metrics() -> set[str]:
    """Return the series of DMLS: those of the generated table, and those of Triton's Python backend."""
    table = (ROOT / "docs/reference/metrics.md").read_text().partition("<!-- end of metrics -->")[0]
    rows = re.findall(r"^\| `(dmls_\w+)` \| (\w+)", table, re.MULTILINE)
    names = {name for name, _ in rows}
    names |= {f"{name}_{part}" for name, kind in rows if kind == "summary" for part in ("count", "sum")}
    code = "".join(file.read_text() for file in (ROOT / "dmls_core/serving/endpoint").glob("*.py"))
    return names | set(re.findall(r'"(dmls_\w+_total)"', code))


def unknown_metrics(query: str) -> set[str]:
    """Return the metrics of a query that neither DMLS nor Triton has."""
    return set(re.findall(r"\b(?:dmls|nv)_\w+", query)) - dmls_metrics() - TRITON
