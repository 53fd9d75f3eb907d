"""Lines of Airflow's logs."""

from __future__ import annotations

from dmls_core.web.services.airflow_api import log_lines


def test_log_lines_leave_out_fold_markers_and_log_sources():
    entries = [
        {"event": "::group::Log message source details", "sources": []},
        {"event": "Could not read served logs"},
        {"event": "::endgroup::"},
        {"event": "::group::Pre Execute", "timestamp": "2026-01-01T10:00:00Z"},
        {"event": "trial 1/5\nbest", "timestamp": "2026-01-01T10:00:01Z"},
        {"event": "broke", "error_detail": [{"exc_type": "ValueError", "exc_value": "no"}]},
        "plain",
    ]
    assert log_lines(entries) == ["10:00:01 trial 1/5", "10:00:01 best", "broke", "ValueError: no", "plain"]
