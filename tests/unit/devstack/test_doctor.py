from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from dmls_core.devstack.airflow import BUNDLE_CLASSPATH
from dmls_core.devstack.context import Context, Identity
from dmls_core.devstack.doctor import Check, examine, machine
from dmls_core.devstack.doctor.services import (
    check_in_airflow,
    check_processes,
    check_signing,
    service_checks,
)
from dmls_core.devstack.platform import Platform
from dmls_core.errors import StoreError
from dmls_core.settings import Settings
from dmls_core.store import ProcessFailure, ProcessFailures, open_store, write_process_failures
from dmls_core.store.local import LocalStore
from tests.support.signing_keys import key_pair


class FakeServices:
    """Answers what Airflow, MLflow and Triton answer, as far as a path is in ``answers``."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {
            "/version": "3.17.2",
            "/v2": {"name": "triton", "version": "2.51.0", "extensions": ["model_repository"]},
            "/v2/health/ready": "",
            "/auth/token": {"access_token": "t"},
            "/api/v2/monitor/health": {
                name: {"status": "healthy"}
                for name in ("metadatabase", "scheduler", "triggerer", "dag_processor")
            },
            "/api/v2/dags/dmls.intake": {"bundle_name": "dmls", "is_stale": False},
            "/api/v2/assets": {
                "assets": [
                    {"scheduled_dags": [{"dag_id": dag_id}], "watchers": [{"name": dag_id}]}
                    for dag_id in ("dmls.intake", "dmls.score")
                ]
            },
            "/api/v2/dags/~/dagRuns": {"dag_runs": []},
            "/api/v2/pools/dmls_cpu": {"slots": 2, "include_deferred": True},
            "/api/v2/pools/dmls_gpu": {"slots": 0, "include_deferred": True},
        }
        answers = self.answers

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                found = path in answers
                self.send_response(200 if found else 404)
                self.end_headers()
                if found:
                    answer = answers[path]
                    self.wfile.write((answer if isinstance(answer, str) else json.dumps(answer)).encode())

            do_POST = do_GET

            def log_message(self, *arguments: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_port}"
        answers["/api/v2/connections/dmls_study"] = {
            "conn_type": "postgres",
            "host": "127.0.0.1",
            "port": self.server.server_port,
        }


@pytest.fixture
def services() -> Iterator[FakeServices]:
    fake = FakeServices()
    thread = threading.Thread(target=fake.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield fake
    fake.server.shutdown()
    thread.join()
    fake.server.server_close()


def look(address: str, root: Path) -> dict[str, Check]:
    settings = Settings(
        root=str(root),
        mlflow_uri=f"http://{address}",
        triton_http=address,
        airflow_url=f"http://{address}",
        airflow_username="u",
        airflow_password="p",
    )
    return {check.name: check for make in service_checks(settings) for check in make()}


def test_a_platform_of_somebody_elses_that_is_well(services: FakeServices, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("DMLS_SIGNERS", key_pair().public)
    checks = look(services.address, tmp_path)
    assert {check.state for check in checks.values()} == {"ok"}, checks
    assert "2 slots" in checks["airflow pool dmls_cpu"].message
    assert "3.17.2" in checks["mlflow"].message


def test_a_store_that_refuses_to_write(
    services: FakeServices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_: object, **__: object) -> None:
        raise StoreError("No space left on device")

    monkeypatch.setattr("dmls_core.store.local.LocalStore.put", refuse)
    check = look(services.address, tmp_path)["store"]
    assert check.state == "broken"
    assert "not writable: No space left" in check.message
    assert "free space" in check.hint


def test_a_store_that_refuses_some_writes(
    services: FakeServices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    put = LocalStore.put

    def refuse(store: LocalStore, key: str, *arguments: object) -> object:
        if "folder-17" in key:
            raise StoreError("leveldb is read-only")
        return put(store, key, *arguments)

    monkeypatch.setattr(LocalStore, "put", refuse)
    check = look(services.address, tmp_path)["store"]
    assert check.state == "broken"
    assert "1 of 32 folders refuse writes: leveldb is read-only" in check.message
    assert "restart SeaweedFS" in check.hint


def test_a_probe_of_the_store_leaves_nothing_and_damaged_records_are_named(
    services: FakeServices, tmp_path: Path
):
    store = open_store(str(tmp_path))
    store.put("registry/jobs/lab/iris.json", b"{")
    checks = look(services.address, tmp_path)
    assert checks["store"].state == "ok"
    assert "registry/jobs/lab/iris.json" in checks["registry"].message
    assert [info.key for info in store.list("")] == ["registry/jobs/lab/iris.json"]


def test_each_lack_is_named_with_how_to_mend_it(services: FakeServices, tmp_path: Path):
    services.answers["/api/v2/pools/dmls_cpu"]["include_deferred"] = False
    del services.answers["/api/v2/pools/dmls_gpu"]
    del services.answers["/api/v2/dags/dmls.intake"]
    services.answers["/api/v2/assets"]["assets"][1]["watchers"] = []
    del services.answers["/v2/health/ready"]
    services.answers["/api/v2/monitor/health"]["triggerer"]["status"] = "unhealthy"
    services.answers["/api/v2/dags/~/dagRuns"] = {"dag_runs": [{"dag_id": "dmls.lab.iris"}]}
    checks = look(services.address, tmp_path)
    broken = {name: check for name, check in checks.items() if check.state == "broken"}
    assert set(broken) == {
        "airflow",
        "airflow bundle",
        "airflow dates",
        "airflow pool dmls_cpu",
        "airflow pool dmls_gpu",
        "airflow watchers",
        "triton",
    }
    assert "triggerer" in broken["airflow"].message
    assert "the clock was set back: runs of dmls.lab.iris" in broken["airflow dates"].message
    assert "airflow pools set dmls_gpu" in broken["airflow pool dmls_gpu"].hint
    assert "starts dmls.score: the watcher is gone" in broken["airflow watchers"].message
    assert "dag_bundle_config_list" in broken["airflow bundle"].hint
    assert all(check.hint for check in broken.values())


@pytest.mark.parametrize(
    ("connection", "state", "hint"),
    [
        (None, "missing", "airflow connections add dmls_study"),
        ({"conn_type": "mysql", "host": "db"}, "broken", "--conn-type postgres"),
        ({"conn_type": "postgres", "host": "/run/pg"}, "missing", "an address"),
        ({"conn_type": "postgres", "host": "127.0.0.1", "port": 9}, "broken", "host and port"),
    ],
)
def test_the_connection_over_which_trainers_share_a_search(
    services: FakeServices, tmp_path: Path, connection: dict[str, Any] | None, state: str, hint: str
):
    services.answers.pop("/api/v2/connections/dmls_study")
    if connection:
        services.answers["/api/v2/connections/dmls_study"] = connection

    check = look(services.address, tmp_path)["connection dmls_study"]

    assert check.state == state
    assert hint in check.hint


def test_services_that_do_not_answer(services: FakeServices, tmp_path: Path):
    services.server.socket.close()
    checks = look("127.0.0.1:9", tmp_path / "none")
    assert {name for name, check in checks.items() if check.state == "broken"} >= {
        "mlflow",
        "triton",
        "airflow",
    }


@pytest.mark.parametrize("address", ["localhost", "http://[::1"])
def test_what_is_no_address_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str):
    monkeypatch.setenv("DMLS_HOME", str(tmp_path / "none"))
    for name in ("MLFLOW_TRACKING_URI", "DMLS_AIRFLOW_URL"):
        monkeypatch.setenv(name, address)
    checks = {check.name: check for check in examine(Platform(tmp_path / "none"))}
    for name in ("mlflow", "airflow"):
        assert checks[name].state == "broken"
        assert address in checks[name].message


def test_an_answer_that_makes_no_sense_hides_no_other_finding(
    services: FakeServices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    services.answers["/v2"] = "<html>not Triton</html>"
    monkeypatch.setenv("DMLS_HOME", str(tmp_path / "none"))
    for name in ("MLFLOW_TRACKING_URI", "DMLS_AIRFLOW_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DMLS_TRITON_HTTP", services.address)
    checks = examine(Platform(tmp_path / "none"))
    assert any(check.name == "python" for check in checks)
    assert [check.state for check in checks if "JSONDecodeError" in check.message] == ["broken"]


def test_nothing_is_set_up_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DMLS_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent.sock")
    checks = {check.name: check for check in examine(Platform(tmp_path / "none"))}
    assert checks["python"].state == "ok"
    assert checks["packages: airflow"].state == "ok"
    assert checks["docker"].state == "missing"
    assert "process runner" in checks["docker"].message
    assert checks["embedded platform"].message == "down"
    for name in ("store", "mlflow", "triton", "airflow"):
        assert checks[name].state == "missing"
        assert "dmls up" in checks[name].hint
    assert not (tmp_path / "none").exists(), "doctor leaves no trace"


def test_a_state_folder_that_others_may_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DMLS_HOME", str(tmp_path))
    (tmp_path / "settings.json").touch(0o644)
    tmp_path.chmod(0o700)
    (check,) = [c for c in examine(Platform(tmp_path)) if c.name == "state folder"]
    assert check.state == "broken"
    assert "settings.json" in check.message
    assert "chmod" in check.hint


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch):
    wanted = ['nonexistent-thing>=2; extra == "platform"', 'psutil>=999; extra == "platform"', "boto3"]
    monkeypatch.setattr("importlib.metadata.requires", lambda _: wanted)
    check = machine.check_packages("platform")
    assert check.state == "missing"
    assert "nonexistent-thing>=2" in check.message
    assert "psutil>=999 (found" in check.message
    assert check.hint.endswith("pip install 'dmls[platform]'")


def test_little_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    import shutil

    usage = type(shutil.disk_usage(tmp_path))
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage(10, 10, 2**20))
    assert machine.check_disk(tmp_path / "not" / "yet").state == "broken"


@pytest.mark.parametrize(
    ("runner", "message", "connections", "unlisted"),
    [
        (
            {
                "runner": "process",
                "trainer_python": "/nonexistent",
                "connections": {"dmls_email_default": ["*"], "dmls_slack_default": []},
            },
            "process: trainer_python /nonexistent cannot be started",
            ("DMLS_EMAIL_DEFAULT", "DMLS_STUDY", "DMLS_WEBHOOK_ALERTS", "WAREHOUSE"),
            ["dmls_webhook_alerts"],
        ),
        ({"runner": "none"}, "no installed package registers this runner", (), []),
    ],
)
def test_the_embedded_platform_is_asked_what_its_runner_and_notifiers_lack(
    tmp_path: Path,
    runner: dict[str, Any],
    message: str,
    connections: tuple[str, ...],
    unlisted: list[str],
):
    entry = {"name": "dmls", "classpath": BUNDLE_CLASSPATH, "kwargs": {"root": str(tmp_path), **runner}}
    environment = {
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps([entry]),
        **dict.fromkeys((f"AIRFLOW_CONN_{name}" for name in connections), "http://127.0.0.1:9"),
    }
    (tmp_path / "services").mkdir()
    (tmp_path / "services/airflow-scheduler.json").write_text(json.dumps({"environment": environment}))
    context = Context(tmp_path, Identity(id="0", runtime=str(tmp_path), credentials={}, ports={}))
    check, *others = check_in_airflow(context)
    assert (check.name, check.state) == ("runner", "broken"), check
    assert message in check.message
    assert check.hint
    assert [(other.name, other.state, other.message) for other in others] == [
        ("notifiers", "missing", f"no team may use {name}: nothing is sent there") for name in unlisted
    ]


def test_the_key_that_signs_models_must_be_accepted():
    first, other = key_pair(), key_pair()
    assert check_signing({}).state == "missing"
    environment = {"DMLS_SIGNING_KEY": first.private, "DMLS_SIGNERS": other.public}
    check = check_signing(environment)
    assert (check.state, "not in DMLS_SIGNERS" in check.message) == ("broken", True)
    assert check_signing(environment | {"DMLS_SIGNERS": other.public + first.public}).state == "ok"
    check = check_signing(environment | {"DMLS_SIGNING_KEY": "no key"})
    assert (check.state, "no key" in check.message) == ("broken", False)


def test_the_running_platform_is_described_whatever_the_variables_of_the_caller(tmp_path: Path, monkeypatch):
    """A genuine FIL was reported as missing, and the keys of the caller as those of Airflow."""
    monkeypatch.delenv("DMLS_TRITON_SERVER", raising=False)
    monkeypatch.setenv("DMLS_SIGNERS", "no key")
    (tmp_path / "backends/fil").mkdir(parents=True)
    command = [sys.executable, "-c", "print(flush=True); input()", f"--backend-directory={tmp_path}/backends"]
    for library, state in ((None, "missing"), (tmp_path / "backends/fil/libtriton_fil.so", "ok")):
        if library:
            library.touch()
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()  # before, its command may not be there yet
            assert machine.check_fil(process.pid).state == state
            process.kill()
    (tmp_path / "services").mkdir()
    service = {"environment": {"DMLS_SIGNERS": key_pair().public}}
    (tmp_path / "services/airflow-scheduler.json").write_text(json.dumps(service))
    context = Context(tmp_path, Identity(id="0", runtime=str(tmp_path), credentials={}, ports={}))
    *_, signing, _ = service_checks(Settings(), context)
    assert [check.state for check in signing()] == ["ok"]


def test_processes_of_triton_that_ended_are_named(tmp_path: Path):
    store, settings = open_store(str(tmp_path)), Settings(root=str(tmp_path))
    assert check_processes(settings).message == "none ended within a day"
    now = datetime.now(UTC)
    old = ProcessFailure("lab.old", "a:8000", (now - timedelta(days=2)).isoformat(), now.isoformat())
    healed = ProcessFailure("lab.iris", "a:8000", now.isoformat(), now.isoformat())
    write_process_failures(store, "lab.iris", ProcessFailures((old, healed)))
    check = check_processes(settings)
    assert check.state == "ok"
    assert check.message == f"1 ended within a day and were reloaded. Latest: {healed.text}"
    dead = ProcessFailure("dmls-shared", "a:8000", (now - timedelta(days=2)).isoformat(), error="no memory")
    write_process_failures(store, "dmls-shared", ProcessFailures((dead,)))
    check = check_processes(settings)
    assert (check.state, check.message) == ("broken", dead.text)
