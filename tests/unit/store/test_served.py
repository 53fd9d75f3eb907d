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
    assert status.message.startswith("version 1: accuracy 0.8000 on its holdout, since ")
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
