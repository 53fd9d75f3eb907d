"""The tasks ``validate`` and ``plan``."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, TaskDeferred

from dmls_core.airflow.jobs.tasks import base
from dmls_core.airflow.jobs.tasks.validate import ValidateOperator
from dmls_core.airflow.runners.trainer import trainer_arguments
from dmls_core.airflow.runs.job import job_of
from dmls_core.airflow.settings import AirflowSettings
from dmls_core.intake import admit, read_status
from dmls_core.store import open_store

SPEC = b"""
model = "random-forest-classifier"
[columns]
target = "y"
time = "t"
[data]
path = "data/{date}.csv"
timeout = 3600
[schedule]
cron = "0 0 * * 1"
"""
ROWS = b"t,a,y\n2026-01-05,1,x\n2026-01-05,2,z\n"


class Task:
    """What a task instance keeps for other tasks."""

    task_id = "validate"

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.kept[key] = json.loads(json.dumps(value))

    def xcom_pull(self, task_ids: str, key: str) -> Any:
        return self.kept.get(key) if task_ids == self.task_id else None


@pytest.fixture
def begin(root, bundle, monkeypatch):
    """Admit the job with some days, and make the context of one of its runs."""
    settings = AirflowSettings(root=str(root), runner="process")
    monkeypatch.setattr(base, "airflow_settings", lambda: settings)
    store = open_store(str(root))

    def _begin(*days: str, run_type: str = "scheduled", start: str = "2026-01-05", end: str = "2026-01-12"):
        for day in days:
            store.put(f"incoming/lab/weekly/data/{day}.csv", ROWS)
        store.put("incoming/lab/weekly/spec.toml", SPEC)
        assert admit(store, "lab", "weekly").state == "accepted"
        made = bundle()
        made.initialize()
        (path,) = [p for p in made.path.glob("shard_*.json") if "dmls.lab.weekly" in p.read_text()]
        interval = [datetime.fromisoformat(text).replace(tzinfo=UTC) for text in (start, end)]
        run = SimpleNamespace(
            run_type=run_type,
            data_interval_start=interval[0],
            data_interval_end=interval[1],
            run_after=datetime(2026, 3, 1, tzinfo=UTC),
            conf={},
        )
        return {
            "dag": SimpleNamespace(fileloc=str(path.with_suffix(".py")), dag_id="dmls.lab.weekly"),
            "dag_run": run,
            "run_id": "scheduled__1",
            "task_instance": Task(),
        }, store

    return _begin


def test_what_the_run_reads_is_chosen_and_kept_with_it(begin) -> None:
    context, store = begin("2026-01-01", "2026-01-05", "2026-01-07", "2026-01-12")

    assert ValidateOperator(task_id="validate").execute(context) == {"objects": 2, "bytes": 2 * len(ROWS)}

    job = job_of(context)
    assert [item.key[-14:] for item in job.data] == ["2026-01-05.csv", "2026-01-07.csv"]
    kept = json.loads(store.get(job.run_file("run.json")))
    assert kept["interval"] == ["2026-01-05T00:00:00+00:00", "2026-01-12T00:00:00+00:00"]
    assert [item["etag"] for item in kept["data"]] == [item.etag for item in job.data]
    status = read_status(store, "lab", "weekly")
    assert (status.state, status.run_folder_key) == ("running", job.record.run_key)
    arguments = trainer_arguments(job, store, {"engine": "cpu", "worker": 0})
    assert [text[-14:] for text in arguments[2:4]] == ["2026-01-05.csv", "2026-01-07.csv"]
    assert arguments[arguments.index("--until") + 1] == kept["interval"][1]
    assert arguments[arguments.index("--since") + 1] == kept["interval"][0]


def test_an_admission_s_run_takes_the_newest_interval_with_data(begin) -> None:
    context, _ = begin("2026-01-05", "2026-01-20", start="2026-02-01", end="2026-02-01")
    ValidateOperator(task_id="validate").execute(context)
    assert job_of(context).inputs.interval[0] == "2026-01-19T00:00:00+00:00"


def test_a_partition_that_has_not_come_is_waited_for_without_a_worker(begin) -> None:
    context, store = begin("2026-01-12")
    task = ValidateOperator(task_id="validate")

    with pytest.raises(TaskDeferred) as deferred:
        task.execute(context)

    given = deferred.value.trigger.arguments
    assert (given["folder"], given["path"]) == ("incoming/lab/weekly/", "data/{date}.csv")
    assert (given["start"][:10], given["end"][:10]) == ("2026-01-05", "2026-01-12")
    left = datetime.fromisoformat(given["deadline"]) - datetime.now(UTC)
    assert 3000 < left.total_seconds() <= 3600
    assert read_status(store, "lab", "weekly").message.startswith("waiting for data/2026-01-05.csv, until ")
    with pytest.raises(AirflowFailException, match=r"\[data\] timeout \(3600 s\)"):
        task.resume(context, {"arrived": False})
    store.put("incoming/lab/weekly/data/2026-01-11.csv", ROWS)
    assert task.resume(context, {"arrived": True})["objects"] == 1


def test_a_backfill_does_not_change_the_status(begin) -> None:
    context, store = begin("2026-01-05", run_type="backfill")
    before = read_status(store, "lab", "weekly")
    ValidateOperator(task_id="validate").execute(context)
    job = job_of(context)
    assert (job.backfill, bool(job.inputs)) == (True, True)
    assert read_status(store, "lab", "weekly") == before
