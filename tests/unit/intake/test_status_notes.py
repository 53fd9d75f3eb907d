"""A note behind an answer: added once, replaced by the next, gone with the next answer."""

from __future__ import annotations

import pytest

from dmls_core.intake import add_note, read_status, write_status
from dmls_core.store import layout, open_store


@pytest.fixture
def store(tmp_path):
    return open_store(str(tmp_path))


def test_a_note_stands_behind_what_was_said_of_the_run(store):
    write_status(
        store, "lab", "iris", "deployed", "deployed as 1", run_key="k", links={"mlflow": "http://m/"}
    )
    assert add_note(store, "lab", "iris", "no drift", {"drift": "s3://b/1"})
    assert add_note(store, "lab", "iris", "2 columns drifted", {"drift": "s3://b/2"})
    status = read_status(store, "lab", "iris")
    assert (status.state, status.run_key) == ("deployed", "k")
    assert status.message == "deployed as 1; later: 2 columns drifted"
    assert status.links == {"mlflow": "http://m/", "drift": "s3://b/2"}
    page = store.get(layout.incoming_file("lab", "iris", layout.STATUS_MD)).decode()
    assert "2 columns drifted" in page

    write_status(store, "lab", "iris", "running", "searching", run_key="k")
    assert read_status(store, "lab", "iris").message == "searching"


def test_where_nothing_was_answered_nothing_is_added(store):
    assert not add_note(store, "lab", "iris", "no drift", {})
    assert list(store.list("")) == []
