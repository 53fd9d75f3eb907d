"""What differs between documents, and events in words."""

from __future__ import annotations

import json

import pytest

from dmls_core.airflow.database import LogEvent
from dmls_core.web.services.job_details import Difference, describe_event, differences, flatten


def test_tables_in_a_list_are_compared_by_name():
    before = {"models": [{"name": "forest", "depth": {"max": 4}}], "n": 5, "tags": ["a"]}
    after = {"models": [{"name": "boost", "rate": 1}, {"name": "forest", "depth": {"max": 8}}], "n": 5}
    assert flatten(before) == {"models.forest.depth.max": 4, "n": 5, "tags": ["a"]}
    assert differences(before, after) == [
        Difference("models.boost.rate", (None, 1)),
        Difference("models.forest.depth.max", (4, 8)),
        Difference("tags", (["a"], None)),
    ]


CHANGED = {
    "max_depth": {"min": 3, "max": 12},
    "criterion": {"values": ["gini", "entropy"]},
    "n_jobs": {"value": 2},
}


@pytest.mark.parametrize(
    ("event", "extra", "words"),
    [
        ("trigger_dag_run", '{"conf": {"run": {"n_trials": 9}}}', ("started a run", "n_trials = 9")),
        ("trigger_dag_run", '{"conf": null, "method": "POST"}', ("started a run", "")),
        (
            "trigger_dag_run",
            json.dumps({"conf": {"run": {"seed": 3, "hyperparameters": {"a-model": CHANGED}}}}),
            ("started a run", "seed = 3, max_depth = 3 to 12, criterion = gini or entropy, n_jobs = 2"),
        ),
        ("update_hitl_detail", '{"chosen_options": ["Approve"]}', ("approved the model", "")),
        ("update_hitl_detail", '{"chosen_options": ["Reject"]}', ("declined the model", "")),
        ("patch_dag", '{"is_paused": true}', ("paused the job", "")),
        ("patch_dag", '{"is_paused": false}', ("resumed the job", "")),
        ("dmls_rollback", '{"version": 1, "previous": null}', ("served a version again", "version 1")),
        ("dmls_rollback", '{"version": 1, "previous": 2}', ("rolled back", "to version 1, from 2")),
        ("dmls_retire", "not JSON", ("retired the job", "")),
        ("dmls_respec", None, ("submitted a changed spec", "")),
    ],
)
def test_events_are_described_in_words(event: str, extra: str | None, words: tuple[str, str]):
    assert describe_event(LogEvent(None, event, None, None, extra)) == words
