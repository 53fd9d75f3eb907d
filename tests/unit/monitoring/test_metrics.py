"""Counters that outlive their processes, and what Prometheus is told of all jobs."""

from __future__ import annotations

import threading

import pytest

from dmls_core.errors import StoreError
from dmls_core.monitoring.counts import TEXTS, count
from dmls_core.monitoring.exposition import JobMetrics, drift_file
from dmls_core.monitoring.families import Family, exposition_text, read_families
from dmls_core.store import open_store


@pytest.fixture
def store(tmp_path):
    return open_store(str(tmp_path / "root"))


def lines(store):
    return exposition_text(JobMetrics(store).families()).splitlines()


def test_counters_add_up_and_are_there_at_zero(store):
    count(store, "lab", "iris", "deployments")
    count(store, "lab", "iris", "deployments")
    count(store, "lab", "zoo", "rollbacks", 3)
    told = lines(store)
    assert 'dmls_deployments_total{team="lab",job="iris"} 2' in told
    assert 'dmls_deployments_total{team="lab",job="zoo"} 0' in told
    assert 'dmls_rollbacks_total{team="lab",job="zoo"} 3' in told
    for name in TEXTS:
        assert told.count(f"# TYPE dmls_{name}_total counter") == 1


def test_two_processes_at_once_lose_no_count(store):
    def add():
        for _ in range(10):
            count(store, "lab", "iris", "deployments")

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 'dmls_deployments_total{team="lab",job="iris"} 40' in lines(store)


def test_a_store_that_fails_costs_a_count_and_nothing_else(store, monkeypatch, caplog):
    def refuse(*_, **__):
        raise StoreError("the store is down")

    monkeypatch.setattr(type(store), "read", refuse)
    count(store, "lab", "iris", "deployments")
    assert "deployments was not counted: the store is down" in caplog.text


def test_what_changed_is_read_again_and_what_is_gone_is_forgotten(store):
    metrics = JobMetrics(store)
    count(store, "lab", "iris", "rollbacks")
    text = "# HELP dmls_drift_rows Rows.\n# TYPE dmls_drift_rows gauge\ndmls_drift_rows{{}} {}\n"
    store.put(drift_file("lab", "iris", "data"), text.format(7).encode())
    assert "dmls_drift_rows{} 7\n" in exposition_text(metrics.families())
    store.put(drift_file("lab", "iris", "data"), text.format(80).encode())
    count(store, "lab", "iris", "rollbacks")
    told = exposition_text(metrics.families())
    assert "dmls_drift_rows{} 80\n" in told
    assert 'dmls_rollbacks_total{team="lab",job="iris"} 2\n' in told
    store.delete(drift_file("lab", "iris", "data"))
    assert "dmls_drift_rows" not in exposition_text(metrics.families())


def test_a_damaged_file_hides_no_other_job(store):
    count(store, "lab", "iris", "rollbacks")
    store.put("metrics/lab/zoo/counts.json", b"{")
    store.put("metrics/lab/ape/counts.json", b"[]")
    store.put("metrics/lab/cow/notes.txt", b"?")
    told = lines(store)
    assert 'dmls_rollbacks_total{team="lab",job="iris"} 1' in told
    assert not [line for line in told if "zoo" in line or "ape" in line]


def test_families_of_one_name_are_put_together():
    first = '# HELP b two words\n# TYPE b gauge\nb{j="1"} 1\n# HELP a x\n# TYPE a counter\na{} 2\n'
    second = '# HELP b two words\n# TYPE b gauge\nb{j="2"} 3\n'
    told = exposition_text([*read_families(first), *read_families(second)])
    assert told == (
        '# HELP a x\n# TYPE a counter\na{} 2\n# HELP b two words\n# TYPE b gauge\nb{j="1"} 1\nb{j="2"} 3\n'
    )


def test_labels_are_escaped():
    family = Family("a", "gauge", "x").add(1, {"column": 'quo"te\\\n\ud800'})
    assert family.samples == ['a{column="quo\\"te\\\\\\n\ufffd"} 1']
