"""Runs, logs and approvals over Airflow's REST API, against a server that answers as Airflow does."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from dmls_core.airflow.jobs import approval
from dmls_core.cli import job_view
from dmls_core.cli.console import JobName
from dmls_core.cli.job_view import AirflowReply, JobRuns, QueuePosition, describe_job, job_rows, read_airflow
from dmls_core.errors import NotFoundError, PlatformError
from dmls_core.intake import write_status
from dmls_core.settings import Settings
from dmls_core.store import (
    JobRecord,
    ProcessFailure,
    ProcessFailures,
    layout,
    open_store,
    write_process_failures,
    write_served,
)

RUN = "submission-1__0123"
DAG = "/api/v2/dags/dmls.sea.tides"


class Airflow:
    """One DAG with one run; how many approvals get lost before one counts is the test's choice."""

    def __init__(self) -> None:
        self.has_dag = True
        self.queue: list[dict[str, Any]] = []
        self.paused: list[str] = []
        self.commands: list[tuple[str, Any]] = []
        self.refused = 0
        self.lost = 0
        self.pausing = 0
        self.asked = True
        self.running = True
        self.later = False
        self.approvals: list[dict[str, Any]] = []
        self.states = {"search": "success", "approve": "awaiting_input"}

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        if path == "/auth/token":
            return (201, {"access_token": "T"}) if body["password"] == "right" else (401, {"detail": "no"})
        if path == "/dmls/api/v1/queue":
            return 200, self.queue
        if path.startswith("/dmls/api/v1/jobs/"):
            self.commands.append((path, body))
            return 200, {"message": "done"}
        if path.startswith("/api/v2/dags?paused=true"):
            offset = int(path.rpartition("offset=")[2])
            page = [{"dag_id": dag_id} for dag_id in self.paused[offset : offset + job_view.PAGE]]
            return 200, {"dags": page, "total_entries": len(self.paused)}
        return self.answer_of_dag(method, path, body) if self.has_dag else (404, {"detail": "no such DAG"})

    def answer_of_dag(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        if path.startswith(f"{DAG}/dagRuns?"):
            return 200, {"dag_runs": [{"dag_run_id": run} for run in self.runs("state=running&" in path)]}
        if path == f"{DAG}/dagRuns/{RUN}/taskInstances":
            return 200, {"task_instances": [self.task(name, state) for name, state in self.states.items()]}
        if path.startswith(f"{DAG}/dagRuns/{RUN}/taskInstances/search/logs/2"):
            content = [
                {"event": "::group::Pre", "timestamp": None},
                {"event": "two\nlines", "timestamp": "2026-01-02T03:04:05.6Z", "level": "info"},
                {
                    "event": "oh",
                    "level": "error",
                    "error_detail": [{"exc_type": "KeyError", "exc_value": "'x'"}],
                },
            ]
            return 200, {"content": content, "continuation_token": None}
        if path.startswith(f"{DAG}/dagRuns/{RUN}/hitlDetails"):
            pending = {
                "subject": "Deploy?",
                "body": None,
                "options": ["Approve", "Reject"],
                "response_received": False,
                "task_instance": {"state": "running" if self.pausing else "awaiting_input"},
            }
            self.pausing = max(0, self.pausing - 1)
            return 200, {"hitl_details": [pending] if self.asked else []}
        if method == "PATCH" and path == f"{DAG}/dagRuns/{RUN}/taskInstances/approve/-1/hitlDetails":
            assert not self.pausing, "answered before the task paused"
            self.approvals.append(body)
            if self.refused:  # the answer counts, but its response is lost, or another user's came first
                self.refused, self.asked, self.states["approve"] = 0, False, "success"
                return 409, {"detail": "already answered"}
            if len(self.approvals) > self.lost:
                self.asked = False
                self.states["approve"] = "success"
            return 200, {}
        return 404, {"detail": f"unexpected {method} {path}"}

    def runs(self, running: bool) -> list[str]:
        if running:
            return [RUN] if self.running else []
        return ["queued"] if self.later else [RUN] if self.states else []

    @staticmethod
    def task(name: str, state: str) -> dict[str, Any]:
        return {
            "task_id": name,
            "map_index": 0 if name == "search" else -1,
            "state": state,
            "try_number": 2,
            "duration": 1.5,
            "start_date": {"search": "2026-01-01T00:00:00Z", "approve": "2026-01-01T00:00:09Z"}[name],
        }


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Airflow]:
    monkeypatch.setattr(approval, "PAUSE_SECONDS", 0.0)
    fake = Airflow()

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            authorised = self.path == "/auth/token" or self.headers["Authorization"] == "Bearer T"
            code, content = fake.answer(self.command, self.path, body) if authorised else (401, {})
            payload = json.dumps(content).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        do_GET = do_POST = do_PATCH = handle_any

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    fake.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield fake
    server.shutdown()
    server.server_close()


def runs(airflow: Airflow, password: str = "right") -> JobRuns:
    settings = Settings(airflow_url=airflow.url, airflow_username="admin", airflow_password=password)
    return JobRuns(settings, "sea", "tides")


def test_the_latest_run(airflow):
    assert runs(airflow).latest() == RUN


def test_no_run_yet(airflow):
    airflow.states = {}
    with pytest.raises(NotFoundError, match="no run of dmls.sea.tides"):
        runs(airflow).latest()


def test_no_dag_yet(airflow):
    airflow.has_dag = False
    with pytest.raises(NotFoundError, match="no run of dmls.sea.tides"):
        runs(airflow).latest()


def test_a_wrong_password(airflow):
    with pytest.raises(PlatformError, match="401"):
        runs(airflow, "wrong")


def test_an_address_that_is_not_set():
    with pytest.raises(PlatformError, match="DMLS_AIRFLOW_URL"):
        JobRuns(Settings(), "sea", "tides")


STARTS = {
    "earliest": "2026-01-02T03:00:00+00:00",
    "expected": "2026-01-02T03:10:00+00:00",
    "latest": "2026-01-02T03:30:00+00:00",
}


def test_a_waiting_run_has_its_place_and_its_start(airflow, tmp_path):
    airflow.queue = [
        {
            "job": "sea/tides",
            "place": 2,
            "pool": "dmls_cpu",
            "reason": "all slots are in use",
            "starts": STARTS,
        },
        {"job": "sea/waves", "place": None, "pool": "", "reason": "the job is paused", "starts": None},
    ]
    settings = Settings(airflow_url=airflow.url, airflow_username="admin", airflow_password="right")
    store = open_store(str(tmp_path))
    for job in ("tides", "waves", "foam"):
        write_status(store, "sea", job, "running" if job != "foam" else "deployed", "planned")
    odd = tmp_path / "incoming/sea/bad\x01"
    odd.mkdir()
    (odd / "_status.json").write_bytes(b"{}")

    airflow.paused = ["dmls.monitor", *(f"dmls.sea.job{number}" for number in range(120)), "dmls.sea.waves"]
    assert read_airflow(settings).paused == {f"sea/job{number}" for number in range(120)} | {"sea/waves"}

    rows = {row.job: row.queue for row in job_rows(store, settings)}
    assert rows["sea/tides"] == QueuePosition(2, "all slots are in use", STARTS)
    assert rows["sea/waves"] is not None
    assert rows["sea/waves"].text == "the job is paused"
    assert rows["sea/foam"] is None

    view = describe_job(store, JobName("sea", "tides"), settings)
    assert ("waits", "No. 2 in the queue: all slots are in use") in view.facts()
    assert view.as_json()["queue"]["starts"] == STARTS


def test_jobs_are_listed_without_a_queue_if_airflow_does_not_answer(tmp_path, capsys):
    settings = Settings(airflow_url="http://127.0.0.1:9", airflow_username="a", airflow_password="b")
    assert read_airflow(settings) == AirflowReply()
    assert "the queue and the paused jobs are unknown: Airflow does not answer" in capsys.readouterr().err
    assert read_airflow(Settings()).is_paused("sea/tides") is None


def test_logs_are_lines(airflow):
    api = runs(airflow)
    search = api.tasks(RUN)[0]
    assert (search.task_id, search.map_index, search.state) == ("search", 0, "success")
    assert "\n".join(api.log(RUN, search)).splitlines() == [
        "::group::Pre",
        "2026-01-02 03:04:05 INFO    two",
        "2026-01-02 03:04:05 INFO    lines",
        "ERROR   oh",
        "ERROR   KeyError: 'x'",
    ]


def test_an_approval(airflow):
    shown: list[str] = []
    runs(airflow).approve(shown.append)
    assert shown == ["Deploy?"]
    assert airflow.approvals == [{"chosen_options": ["Approve"], "params_input": {}}]


def test_an_approval_that_airflow_lost_is_given_again(airflow):
    airflow.lost = 1
    shown: list[str] = []
    runs(airflow).approve(shown.append)
    assert len(airflow.approvals) == 2
    assert shown == ["Deploy?"]


def test_an_approval_whose_response_is_lost_is_no_failure(airflow):
    airflow.refused = 1
    runs(airflow).approve(str)
    assert len(airflow.approvals) == 1


@pytest.mark.parametrize(
    ("command", "route", "body"),
    [
        ("pause", "pause", {"paused": True}),
        ("resume", "pause", {"paused": False}),
        ("retire", "retire", None),
    ],
)
def test_commands_go_through_the_rest_api(airflow, dmls, monkeypatch, command, route, body):
    monkeypatch.setenv("DMLS_AIRFLOW_URL", airflow.url)
    monkeypatch.setenv("DMLS_AIRFLOW_USERNAME", "admin")
    monkeypatch.setenv("DMLS_AIRFLOW_PASSWORD", "right")
    done = dmls(command, "sea/tides")
    assert (done.code, done.out) == (0, "sea/tides: done\n")
    assert airflow.commands == [(f"/dmls/api/v1/jobs/sea/tides/{route}", body)]


def test_a_task_that_has_not_paused_yet_is_not_answered(airflow):
    airflow.pausing = 2
    runs(airflow).approve(str)
    assert len(airflow.approvals) == 1


def test_the_run_that_waits_is_approved_also_if_a_later_one_is_queued(airflow):
    airflow.later = True
    assert runs(airflow).waiting() == RUN
    runs(airflow).approve(str)
    assert len(airflow.approvals) == 1
    assert runs(airflow).waiting() == ""
    airflow.running = False
    assert runs(airflow).waiting() == ""
    airflow.has_dag = False
    assert runs(airflow).waiting() == ""


def test_no_approval_is_asked(airflow, monkeypatch):
    monkeypatch.setattr(job_view, "REQUEST_SECONDS", 0.2)
    airflow.asked = False
    with pytest.raises(NotFoundError, match="waits for no approval"):
        runs(airflow).approve(str)


def test_a_job_whose_process_ended_says_so(tmp_path):
    store = open_store(str(tmp_path))
    spec = json.dumps({"models": [{"name": "forest"}]}).encode()
    sha256 = hashlib.sha256(spec).hexdigest()
    store.put(layout.spec(sha256), spec)
    record = JobRecord("sea", "tides", sha256, (), "1" * 16, "2026-01-01T00:00:00+00:00", 1)
    store.put(layout.job_record("sea", "tides"), json.dumps(record.as_json()).encode())
    write_served(store, "sea", "tides", 1, {}, by="ann")
    failure = ProcessFailure(
        "sea.tides.table", "triton-1:8000", datetime.now(UTC).isoformat(), error="no memory"
    )
    write_process_failures(store, "sea.tides", ProcessFailures((failure,)))
    view = describe_job(store, JobName("sea", "tides"), Settings())
    assert ("process", failure.text) in view.facts()
    assert failure.text.endswith("and could not be reloaded: no memory")
    assert view.as_json()["process_failures"][0]["error"] == "no memory"
