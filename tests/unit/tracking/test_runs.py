"""Trials in MLflow."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from dmls_core.tracking import runs
from dmls_core.tracking.runs import log_trials

PARENT = SimpleNamespace(info=SimpleNamespace(run_id="parent", experiment_id="1", start_time=1_000_000))


class Played:
    """Keeps runs as MLflow does: a point that is logged twice is kept once."""

    def __init__(self) -> None:
        self.runs: dict[str, SimpleNamespace] = {}
        self.points: set[tuple] = set()
        self.lock = threading.Lock()
        self.break_after: int | None = None

    def create_run(self, experiment_id, start_time, run_name, tags):  # noqa: ARG002
        with self.lock:
            if self.break_after is not None and len(self.runs) >= self.break_after:
                raise ConnectionError
            run_id = f"run{len(self.runs)}"
            info = SimpleNamespace(
                run_id=run_id, run_name=run_name, status="RUNNING", start_time=start_time, end_time=None
            )
            self.runs[run_id] = SimpleNamespace(info=info, data=SimpleNamespace(tags=tags), params={})
            return self.runs[run_id]

    def log_batch(self, run_id, metrics=(), params=()):
        self.points |= {(run_id, m.key, m.value, m.timestamp, m.step) for m in metrics}
        if run_id in self.runs:
            self.runs[run_id].params |= {param.key: param.value for param in params}

    def set_terminated(self, run_id, status, end_time):
        self.runs[run_id].info.status, self.runs[run_id].info.end_time = status, end_time

    def search_runs(self, *args, **options):  # noqa: ARG002
        return list(self.runs.values())


def trial(number, value, seconds=1.0, **more):
    made = {"number": number, "engine": "cpu", "params": {"n": number}, "value": value, "seconds": seconds}
    return made | {"values": [value] if value is not None else [], "same_as": None, "message": ""} | more


def test_trials_follow_each_other_from_the_parents_start_on():
    client = Played()
    log_trials(client, PARENT, [trial(0, 0.5), trial(1, 0.6, 0.25), trial(2, None, message="no")], "maximize")
    by_name = {run.info.run_name: run for run in client.runs.values()}
    spans = {name: (run.info.start_time, run.info.end_time) for name, run in by_name.items()}
    assert spans == {
        "trial 0": (1_000_000, 1_001_000),
        "trial 1": (1_001_000, 1_001_250),
        "trial 2": (1_001_250, 1_002_250),
    }
    assert by_name["trial 2"].info.status == "FAILED"
    assert by_name["trial 2"].data.tags["dmls.message"] == "no"
    assert by_name["trial 1"].params == {"n": "1"}
    assert ("parent", "trial_score", 0.6, 1_001_000, 1) in client.points


@pytest.mark.parametrize(("direction", "kept"), [("maximize", {"2", "3"}), ("minimize", {"0", "1"})])
def test_only_the_best_trials_get_child_runs(monkeypatch, direction, kept):
    monkeypatch.setattr(runs, "MAX_CHILDREN", 2)
    client = Played()
    log_trials(client, PARENT, [*(trial(n, n / 10) for n in range(4)), trial(4, None)], direction)
    assert {run.data.tags["dmls.trial"] for run in client.runs.values()} == kept
    assert len([point for point in client.points if point[1] == "trial_score"]) == 4


def test_a_repeated_call_creates_no_child_run_twice():
    client, done = Played(), [trial(n, n / 100) for n in range(20)]
    client.break_after = 7
    with pytest.raises(ConnectionError):
        log_trials(client, PARENT, done, "maximize")
    client.break_after = None
    log_trials(client, PARENT, done, "maximize")
    points = set(client.points)
    log_trials(client, PARENT, done, "maximize")
    assert sorted(int(run.data.tags["dmls.trial"]) for run in client.runs.values()) == list(range(20))
    assert {run.info.status for run in client.runs.values()} == {"FINISHED"}
    assert client.points == points
