"""Counters in the store, and the metrics of all jobs for Prometheus."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from dmls_core.errors import StoreError
from dmls_core.monitoring.drift import compare
from dmls_core.monitoring.profile import Values, profile_of
from dmls_core.monitoring.prometheus import (
    COUNTER_HELP,
    JobMetricsCollector,
    count,
    decay_metrics,
    drift_file,
    drift_metrics,
    encodable,
    exposition,
    gauge,
    process_metrics,
)
from dmls_core.store import ProcessFailure, ProcessFailures, layout, open_store, write_process_failures

HOSTILE = 'quo"te\\ line\nbreak \ud800'


@pytest.fixture
def store(tmp_path):
    return open_store(str(tmp_path / "root"))


def samples(text):
    """Return (name, sorted labels) -> value."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scrape(store):
    return samples(exposition(JobMetricsCollector(store).collect()))


def of(name, job, **labels):
    return (name, *sorted({"team": "lab", "job": job, **labels}.items()))


def test_counters_add_up_and_start_at_zero(store):
    count(store, "lab", "iris", "deployments")
    count(store, "lab", "iris", "deployments")
    count(store, "lab", "zoo", "rollbacks", 3)
    found = scrape(store)
    assert found[of("dmls_deployments_total", "iris")] == 2
    assert found[of("dmls_deployments_total", "zoo")] == 0
    assert found[of("dmls_rollbacks_total", "zoo")] == 3
    text = exposition(JobMetricsCollector(store).collect())
    for name in COUNTER_HELP:
        assert text.splitlines().count(f"# TYPE dmls_{name}_total counter") == 1


def test_concurrent_counts_are_not_lost(store):
    def add():
        for _ in range(10):
            count(store, "lab", "iris", "deployments")

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert scrape(store)[of("dmls_deployments_total", "iris")] == 40


def test_a_failing_store_costs_one_count_and_logs_a_warning(store, monkeypatch, caplog):
    def refuse(*_, **__):
        raise StoreError("the store is down")

    monkeypatch.setattr(type(store), "read", refuse)
    count(store, "lab", "iris", "deployments")
    assert "deployments was not counted: the store is down" in caplog.text


def test_changed_files_are_read_again_and_deleted_files_are_forgotten(store):
    collector = JobMetricsCollector(store)
    count(store, "lab", "iris", "rollbacks")
    text = "# HELP dmls_drift_rows Rows.\n# TYPE dmls_drift_rows gauge\ndmls_drift_rows{{}} {}\n"
    store.put(drift_file("lab", "iris", "data"), text.format(7).encode())
    assert samples(exposition(collector.collect()))[("dmls_drift_rows",)] == 7
    store.put(drift_file("lab", "iris", "data"), text.format(80).encode())
    count(store, "lab", "iris", "rollbacks")
    found = samples(exposition(collector.collect()))
    assert found[("dmls_drift_rows",)] == 80
    assert found[of("dmls_rollbacks_total", "iris")] == 2
    store.delete(drift_file("lab", "iris", "data"))
    assert "dmls_drift_rows" not in exposition(collector.collect())


def test_a_damaged_file_does_not_affect_other_jobs(store):
    count(store, "lab", "iris", "rollbacks")
    store.put("metrics/lab/zoo/counts.json", b"{")
    store.put("metrics/lab/ape/counts.json", b"[]")
    store.put("metrics/lab/cow/notes.txt", b"?")
    store.put(drift_file("lab", "ant", "data"), b"dmls_drift_rows{ 1\n")
    found = scrape(store)
    assert found[of("dmls_rollbacks_total", "iris")] == 1
    assert {dict(labels)["job"] for _, *labels in found} == {"iris"}


def test_families_of_one_name_are_merged():
    families = [
        gauge("b", "two words", [({"j": "1"}, 1)]),
        gauge("a", "x", [({}, 2)]),
        gauge("b", "two words", [({"j": "2"}, 3)]),
    ]
    assert exposition(families) == (
        '# HELP a x\n# TYPE a gauge\na 2.0\n# HELP b two words\n# TYPE b gauge\nb{j="1"} 1.0\nb{j="2"} 3.0\n'
    )


def test_labels_survive_the_exposition_format():
    text = exposition([gauge("a", "x", [({"column": HOSTILE}, 1)])])
    assert samples(text) == {("a", ("column", encodable(HOSTILE))): 1}


def test_drift_metrics_have_a_series_for_each_compared_column():
    draw = np.random.default_rng(0)
    old = [Values(name, "feature", draw.normal(size=500)) for name in (HOSTILE, "same")]
    new = [Values(HOSTILE, "feature", draw.normal(size=500) + 2), Values("same", "feature", old[1].data)]
    drift = compare(profile_of(old, 500), {(v.role, v.name): v for v in new}, 500, 0.2)
    found = samples(drift_metrics(drift, "lab", "iris", "data"))
    assert found[of("dmls_drift_detected", "iris", source="data")] == 1
    assert found[of("dmls_drift_columns_compared", "iris", source="data")] == 2
    assert found[of("dmls_drift_columns_drifted", "iris", source="data")] == 1
    column = {"role": "feature", "column": encodable(HOSTILE)}
    assert found[of("dmls_drift_psi", "iris", source="data", **column)] > 1


def test_decay_metrics_leave_out_scores_of_versions_without_a_verdict():
    versions = [
        {"version": 3, "metric": "r2", "rows": 300, "score": 0.5, "trained_score": 0.9},
        {"version": 2, "metric": "r2", "rows": 9, "score": None, "trained_score": 0.9},
    ]
    job = {"team": "lab", "job": "iris", "at": "2026-02-01T00:00:00+00:00", "verdict": "decayed"}
    found = samples(decay_metrics(job | {"versions": versions}))
    assert found[of("dmls_decay_detected", "iris")] == 1
    assert found[of("dmls_decay_rows", "iris", version="2", metric="r2")] == 9
    assert found[of("dmls_decay_score", "iris", version="3", metric="r2")] == 0.5
    assert of("dmls_decay_trained_score", "iris", version="2", metric="r2") not in found


def test_ended_processes_are_counted_by_job_and_the_shared_one_without(store):
    ended = ProcessFailure("lab.iris.table", "one:8000", "2026-11-29T12:03:10+00:00")
    healed = ProcessFailure("lab.iris", "two:8000", "2026-11-29T12:03:10+00:00", "2026-11-29T12:03:19+00:00")
    write_process_failures(store, "lab.iris", ProcessFailures((ended, healed), reloads=3))
    write_process_failures(store, "dmls-shared", ProcessFailures((), reloads=1))
    store.put(layout.process_failures("lab.damaged"), b"{}")
    store.put(layout.process_failures("no name"), b"{}")
    found = samples(exposition(process_metrics(store)))
    assert found[of("dmls_process_reloads_total", "iris")] == 3
    assert found["dmls_process_reloads_total", ("job", ""), ("team", "")] == 1
    assert found[of("dmls_processes_ended", "iris", server="one:8000")] == 1
    assert found[of("dmls_processes_ended", "iris", server="two:8000")] == 0
    assert found[of("dmls_process_reloads_total", "damaged")] == 0
    assert len(found) == 5
