"""A service that is slow or broken shows as such and holds nothing up."""

from __future__ import annotations

import json
import socket
import threading

import pytest

from dmls_core.airflow.connections import open_root
from dmls_core.airflow.settings import AirflowSettings
from dmls_core.errors import StoreError
from dmls_core.store import s3_client
from dmls_core.web.platform.probes import probe_all


def test_each_service_shows_how_it_is():
    release = threading.Event()
    asked = []

    def hang() -> str:
        asked.append(1)
        release.wait(30)
        return "late"

    def fail() -> str:
        raise OSError("connection refused")

    probes = {
        "good": ("here", lambda: "1.2.3"),
        "hanging": ("there", hang),
        "dead": ("nowhere", fail),
        "unset": ("", lambda: "never asked"),
    }
    try:
        found = {health.name: health for health in probe_all(probes, 0.5)}
        assert {name: health.state for name, health in found.items()} == {
            "good": "ok",
            "hanging": "slow",
            "dead": "broken",
            "unset": "missing",
        }
        assert found["good"].message == "1.2.3"
        assert "refused" in found["dead"].message
        # A service that hangs is not asked once more before it has answered.
        assert {health.name: health.state for health in probe_all(probes, 0.1)}["hanging"] == "slow"
        assert len(asked) == 1
    finally:
        release.set()
    assert {health.name: health.message for health in probe_all(probes, 10)}["hanging"] == "late"


def test_a_page_does_not_wait_for_ever_for_s3(monkeypatch: pytest.MonkeyPatch):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        extra = {
            "endpoint_url": address,
            "region_name": "us-east-1",
            "config_kwargs": {"user_agent": "theirs"},
        }
        connection = {"conn_type": "aws", "login": "key", "password": "secret", "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_SILENT", json.dumps(connection))
        monkeypatch.setitem(s3_client.INTERACTIVE, "read_timeout", 0.2)
        store = open_root(AirflowSettings(root="s3://bucket", aws_conn_id="silent"), interactive=True)

        with pytest.raises(StoreError, match="no response from the service"):
            store.get("registry/jobs/a/b.json")
        assert store.client.meta.config.user_agent.startswith("theirs")  # what the connection says stays
