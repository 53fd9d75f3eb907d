"""The queues of the pools."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from dmls_core.airflow.database import PooledTask
from dmls_core.web.services.queue import GPU_TRIGGER, PAUSED, WAITING, Wait, enqueue, waits_of_runs


def test_searches_are_queued_by_pool_with_a_reason():
    tasks = [
        PooledTask("dmls.a.first", "dmls_cpu", "running"),
        PooledTask("dmls.a.second", "dmls_cpu", "scheduled"),
        PooledTask("dmls.a.third", "dmls_cpu", "queued"),
        PooledTask("dmls.a.third", "dmls_cpu", "scheduled"),
        PooledTask("dmls.b.first", "dmls_gpu", "scheduled"),
        PooledTask("dmls.b.second", "gone", "scheduled"),
        PooledTask("dmls.b.third", "roomy", "scheduled"),
    ]

    found = enqueue(tasks, {"dmls_cpu": 2, "dmls_gpu": 0, "roomy": 1}, {})

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


def test_a_search_starts_when_those_before_it_have_taken_as_long_as_before():
    started = datetime.now(UTC) - timedelta(seconds=100)
    tasks = [
        PooledTask("dmls.a.first", "dmls_cpu", "running", started),
        PooledTask("dmls.a.second", "dmls_cpu", "scheduled"),
        PooledTask("dmls.a.third", "dmls_cpu", "scheduled"),
        PooledTask("dmls.a.new", "dmls_cpu", "scheduled"),
        PooledTask("dmls.a.last", "dmls_cpu", "scheduled"),
    ]
    durations = {
        "dmls.a.first": [700.0],
        "dmls.a.second": [600.0, 600.0, 600.0],
        "dmls.a.third": [300.0, 300.0, 300.0],
        "dmls.a.last": [60.0],
    }

    found = enqueue(tasks, {"dmls_cpu": 1}, durations)

    only = "the only slot of the pool dmls_cpu is in use"
    assert found["dmls.a.second"].reason == f"{only}; starts in about 10 min (4 min to 22 min)"
    starts = {dag_id: wait.starts and round(wait.starts.middle) for dag_id, wait in found.items()}
    assert starts == {"dmls.a.second": 600, "dmls.a.third": 1200, "dmls.a.new": 1500, "dmls.a.last": None}
    assert found["dmls.a.last"].reason == only


def test_a_helper_waits_in_no_queue_and_its_slot_is_free_soon():
    started = datetime.now(UTC) - timedelta(seconds=100)
    tasks = [
        PooledTask("dmls.a.large", "dmls_cpu", "deferred", started),
        PooledTask("dmls.a.large", "dmls_cpu", "deferred", started, helper=True),
        PooledTask("dmls.a.new", "dmls_cpu", "scheduled"),
        PooledTask("dmls.a.large", "dmls_cpu", "scheduled", helper=True),
    ]

    found = enqueue(tasks, {"dmls_cpu": 2}, {"dmls.a.large": [7000.0] * 3})

    assert found.keys() == {"dmls.a.new"}
    starts = found["dmls.a.new"].starts
    assert starts
    assert starts.high <= 30


def test_a_paused_job_waits_in_no_queue():
    tasks = [
        PooledTask("dmls.a.paused", "dmls_cpu", "scheduled", paused=True),
        PooledTask("dmls.a.next", "dmls_cpu", "scheduled"),
        PooledTask("dmls.a.starting", "dmls_cpu", "queued", paused=True),
    ]

    waits = enqueue(tasks, {"dmls_cpu": 2}, {})

    assert waits["dmls.a.paused"] == Wait(None, "", PAUSED)
    assert {dag_id: wait.position for dag_id, wait in waits.items() if wait.position} == {
        "dmls.a.starting": 1,  # its slot is its own already
        "dmls.a.next": 2,
    }


def test_a_search_whose_trainer_has_ended_waits_for_nothing():
    started = datetime.now(UTC) - timedelta(seconds=100)
    ending = [PooledTask("dmls.a.b", "dmls_cpu", state, started, method="finish") for state in WAITING]

    assert enqueue(ending, {"dmls_cpu": 2}, {}) == {}


def test_runs_that_airflow_has_not_started_wait_outside_a_queue():
    runs = [("a", "queued", True), ("b", "running", False), ("b", "queued", False), ("c", "queued", False)]

    found = waits_of_runs(runs)

    assert {dag_id: wait.position for dag_id, wait in found.items()} == {"a": None, "b": None, "c": None}
    assert "paused" in found["a"].reason
    assert "previous run" in found["b"].reason
    assert "in a moment" in found["c"].reason


def test_a_task_that_waits_for_a_gpu_is_first_in_its_queue_though_it_has_a_slot():
    started = datetime.now(UTC) - timedelta(seconds=100)
    tasks = [
        PooledTask("dmls.a.first", "dmls_gpu", "deferred", started, "a.TrainerTrigger"),
        PooledTask("dmls.a.next", "dmls_gpu", "scheduled"),
        PooledTask("dmls.a.second", "dmls_gpu", "deferred", started, GPU_TRIGGER),
    ]
    durations = {"dmls.a.first": [700.0] * 3, "dmls.a.second": [600.0] * 3}

    found = enqueue(tasks, {"dmls_gpu": 2}, durations)

    assert [(wait.position, dag_id) for dag_id, wait in found.items()] == [
        (1, "dmls.a.second"),
        (2, "dmls.a.next"),
    ]
    assert found["dmls.a.second"].reason == "waits for a GPU: all are in use; starts in about 10 min"
    assert [round(wait.starts.middle) for wait in found.values() if wait.starts] == [600, 1200]
    # Without a trainer of its own on a GPU, the platform does not know when one is free.
    assert enqueue(tasks[1:], {"dmls_gpu": 2}, durations)["dmls.a.second"].starts is None
