"""The record of what is served of a job."""

from __future__ import annotations

import pytest

from dmls_core.errors import StoreError
from dmls_core.intake import read_status, report_served, write_status
from dmls_core.store import layout, open_store, read_served, write_served


@pytest.fixture
def store(tmp_path):
    return open_store(str(tmp_path))


def serve(store, version, score, by="a run"):
    return write_served(store, "lab", "iris", version, {"metric": "accuracy", "score": score}, by=by)


def test_the_record_follows_deployments_and_rollbacks(store):
    assert read_served(store, "lab", "iris") is None
    first = serve(store, 1, 0.8)
    assert (first.version, first.score, first.previous) == (1, 0.8, None)
    serve(store, 2, 0.9)
    again = serve(store, 1, 0.8, by="Ada")
    assert read_served(store, "lab", "iris") == again
    assert (again.version, again.score, again.previous, again.by) == (1, 0.8, 2, "Ada")
    assert serve(store, 1, 0.8, by="a repeated step") == again


def test_a_damaged_record_is_named(store):
    store.put(layout.served("lab", "iris"), b"{")
    with pytest.raises(StoreError, match=r"registry/served/lab/iris.json is damaged"):
        read_served(store, "lab", "iris")


def test_the_status_says_what_is_served_after_a_rollback(store):
    serve(store, 2, 0.9)
    write_status(store, "lab", "iris", "deployed", "deployed as lab.iris version 2", run_key="k")
    assert read_status(store, "lab", "iris").served["version"] == 2
    assert report_served(store, "lab", "iris", serve(store, 1, 0.8, by="Ada"))
    status = read_status(store, "lab", "iris")
    assert (status.served["version"], status.served["score"]) == (1, 0.8)
    assert status.message.startswith("version 1: accuracy 0.8000 on its holdout, served since ")
    assert status.message.endswith("instead of version 2: rolled back by Ada")
    page = store.get(layout.incoming_file("lab", "iris", layout.STATUS_MD)).decode()
    assert "Served: version 1: accuracy 0.8000" in page


def test_a_stopped_model_is_served_again_and_not_rolled_back(store):
    write_status(store, "lab", "iris", "stopped", "version 1 is no longer served", run_key="k")
    assert report_served(store, "lab", "iris", serve(store, 1, 0.8, by="Ada"))
    status = read_status(store, "lab", "iris")
    assert status.state == "deployed"
    assert status.message.endswith(" UTC: served again by Ada")


def test_a_rollback_keeps_the_message_of_a_run_at_work(store):
    write_status(store, "lab", "iris", "running", "searching", run_key="k")
    report_served(store, "lab", "iris", serve(store, 1, 0.8))
    status = read_status(store, "lab", "iris")
    assert (status.state, status.message, status.served["version"]) == ("running", "searching", 1)


def test_a_rollback_knows_when_the_version_was_trained(store):
    about = {"metric": "accuracy", "score": 0.9}
    for version in (1, 2):
        trained = f"2026-11-0{version}T10:00:00.123+00:00"
        write_served(store, "lab", "iris", version, about, by="a run", run=f"run-{version}", trained=trained)
    back = write_served(store, "lab", "iris", 1, about, by="Ada")
    assert (back.run, back.trained[:10], back.previous) == ("run-1", "2026-11-01", 2)
    assert ", trained 2026-11-01 10:00 UTC, served since " in back.text
    assert write_served(store, "lab", "iris", 2, about, by="Ada").run == "run-2"
    found = read_served(store, "lab", "iris")
    assert found
    assert found.trained.startswith("2026-11-02")
