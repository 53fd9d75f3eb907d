"""What the Platform page says of processes that ended."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

from dmls_core.errors import StoreError
from dmls_core.store import ProcessFailure, ProcessFailures, Store, open_store, write_process_failures
from dmls_core.web.services import platform_overview
from dmls_core.web.services.platform_overview import read_failures


def test_ended_processes_of_readable_jobs_and_the_shared_one_are_named_latest_first(tmp_path, monkeypatch):
    store, now = open_store(str(tmp_path)), datetime.now(UTC)
    for minutes, model in enumerate(("lab.iris", "sea.tides", "dmls-shared")):
        noticed = (now - timedelta(minutes=minutes)).isoformat()
        write_process_failures(store, model, ProcessFailures((ProcessFailure(model, "a:8000", noticed),)))
    monkeypatch.setattr(platform_overview, "authorized_dags", lambda _, dags: dags - {"dmls.sea.tides"})
    user = cast("Any", None)
    assert [failure.process for failure in read_failures(store, user)] == ["lab.iris", "dmls-shared"]


def test_without_the_store_none_are_named():
    class Down:
        def list(self, _):
            raise StoreError("the store does not answer")

    assert read_failures(cast("Store", Down()), cast("Any", None)) == []
