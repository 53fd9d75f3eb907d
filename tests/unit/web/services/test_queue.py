"""The queues of the pools."""

from __future__ import annotations

from dmls_core.web.services.queue import enqueue, waits_of_runs


def test_searches_are_queued_by_pool_with_a_reason():
    tasks = [
        ("dmls.a.first", "dmls_cpu", "running"),
        ("dmls.a.second", "dmls_cpu", "scheduled"),
        ("dmls.a.third", "dmls_cpu", "queued"),
        ("dmls.a.third", "dmls_cpu", "scheduled"),
        ("dmls.b.first", "dmls_gpu", "scheduled"),
        ("dmls.b.second", "gone", "scheduled"),
        ("dmls.b.third", "roomy", "scheduled"),
    ]

    found = enqueue(tasks, {"dmls_cpu": 2, "dmls_gpu": 0, "roomy": 1})

    assert {dag_id: (wait.position, wait.pool) for dag_id, wait in found.items()} == {
        "dmls.a.third": (1, "dmls_cpu"),
        "dmls.a.second": (2, "dmls_cpu"),
        "dmls.b.first": (1, "dmls_gpu"),
        "dmls.b.second": (1, "gone"),
        "dmls.b.third": (1, "roomy"),
    }
    assert found["dmls.a.second"].reason == "all 2 slots of the pool dmls_cpu are in use"
    assert "as soon as an Airflow worker is free" in found["dmls.a.third"].reason
    assert "no slots" in found["dmls.b.first"].reason
    assert "does not exist" in found["dmls.b.second"].reason
    assert found["dmls.b.third"].reason == "starts in a moment"


def test_runs_that_airflow_has_not_started_wait_outside_a_queue():
    runs = [("a", "queued", True), ("b", "running", False), ("b", "queued", False), ("c", "queued", False)]

    found = waits_of_runs(runs)

    assert {dag_id: wait.position for dag_id, wait in found.items()} == {"a": None, "b": None, "c": None}
    assert "paused" in found["a"].reason
    assert "previous run" in found["b"].reason
    assert "in a moment" in found["c"].reason
