"""The store with timeouts for users who wait."""

from __future__ import annotations

import json
import socket

import pytest

from dmls_core.airflow.settings import AirflowSettings, open_root
from dmls_core.errors import StoreError
from dmls_core.store import s3_client


def test_an_s3_server_that_hangs_fails_within_seconds(monkeypatch: pytest.MonkeyPatch):
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
        assert store.client.meta.config.user_agent.startswith("theirs")  # settings of the connection stay
