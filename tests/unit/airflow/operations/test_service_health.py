"""Health of services."""

from __future__ import annotations

import threading

from dmls_core.airflow.operations.service_health import Probe, probe_all


def test_each_service_has_a_health_and_a_hanging_one_is_probed_once():
    release = threading.Event()
    probed = []

    def hang() -> str:
        probed.append(1)
        release.wait(30)
        return "late"

    def fail() -> str:
        raise OSError("connection refused")

    probes = {
        "good": Probe("here", lambda: "1.2.3"),
        "hanging": Probe("there", hang),
        "dead": Probe("nowhere", fail, "start it again"),
        "unset": Probe("", lambda: "never probed"),
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
        assert {health.name: health.hint for health in found.values() if health.hint} == {
            "dead": "start it again"
        }
        # A service that hangs is not probed again before it has responded.
        assert {health.name: health.state for health in probe_all(probes, 0.1)}["hanging"] == "slow"
        assert len(probed) == 1
    finally:
        release.set()
    assert {health.name: health.message for health in probe_all(probes, 10)}["hanging"] == "late"
