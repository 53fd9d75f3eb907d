"""What the Platform page says of processes that ended."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

from dmls_core.errors import StoreError
from dmls_core.store import ProcessFailure, ProcessFailures, Store, open_store, write_process_failures
from dmls_core.web.services import platform_overview
from dmls_core.web.services.platform_overview import PlatformOverview, read_failures
from dmls_core.web.templating import environment


def test_ended_processes_of_readable_jobs_and_the_shared_one_are_named_latest_first(tmp_path, monkeypatch):
    store, now = open_store(str(tmp_path)), datetime.now(UTC)
    for minutes, model in enumerate(("lab.iris", "sea.tides", "dmls-shared")):
        noticed = (now - timedelta(minutes=minutes)).isoformat()
        write_process_failures(store, model, ProcessFailures((ProcessFailure(model, "a:8000", noticed),)))
    monkeypatch.setattr(platform_overview, "authorized_dags", lambda _, dags: dags - {"dmls.sea.tides"})
    failures = read_failures(store, cast("Any", None))
    assert [failure.process for failure in failures] == ["lab.iris", "dmls-shared"]
    platform = PlatformOverview(
        services=[], gpus=[], gpus_offered=0, pools=[], leases=[], leased=0, queue=[], waiting=0,
        process_failures=failures, versions={}, runner="process",
    )  # fmt: skip
    page = environment().get_template("platform_live.html")
    assert "Ended processes" in page.render(platform=platform, base="/dmls")
    assert "process of dmls-shared on a:8000 ended" in page.render(platform=platform, base="/dmls")
    platform.process_failures = []
    assert "Ended processes" not in page.render(platform=platform, base="/dmls")


def test_without_the_store_none_are_named():
    class Down:
        def list(self, _):
            raise StoreError("the store does not answer")

    assert read_failures(cast("Store", Down()), cast("Any", None)) == []
