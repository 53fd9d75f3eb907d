"""The runs of a job, and a run's files."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from dmls_core.airflow import database
from dmls_core.airflow.runs.job import INPUTS
from dmls_core.airflow.runs.run_inputs import RunInputs
from dmls_core.web.services.runs import RunFiles, read_runs

DAY = ("2026-01-05T00:00:00+00:00", "2026-01-06T00:00:00+00:00")
AS_AIRFLOW_STORES_TUPLES = {"__classname__": "builtins.tuple", "__version__": 1, "__data__": [*DAY]}


@pytest.mark.parametrize(
    "inputs",
    [RunInputs("a" * 16, (), DAY, DAY[0]).as_json(), {"interval": AS_AIRFLOW_STORES_TUPLES}],
    ids=["now", "earlier release"],
)
def test_a_run_names_the_days_of_its_data(inputs, monkeypatch: pytest.MonkeyPatch):
    start = datetime(2026, 1, 6, 4, tzinfo=UTC)
    row = SimpleNamespace(run_id="r", bundle_version=None, conf=None, state="success", run_type="scheduled")
    row.start_date = row.end_date = start
    row.triggering_user_name = None
    stored = SimpleNamespace(run_id="r", task_id="validate", key=INPUTS, value=inputs)
    monkeypatch.setattr(database, "dag_runs", lambda *_, **__: [row])
    monkeypatch.setattr(database, "xcoms_of_runs", lambda *_: [stored])
    (run,) = read_runs(None, "shop", "loans")
    assert run.interval == DAY
    assert run.name == "06 Jan 2026 04:00:00 UTC, data of 2026-01-05 to 2026-01-06"


def test_the_time_left_comes_from_trials_that_were_not_duplicates():
    trials = [
        {"seconds": 2.0, "same_as": None},
        {"seconds": 0.0, "same_as": 0},
        {"seconds": 4.0, "same_as": None},
    ]
    progress = {"state": "searching", "finished": 3, "total": 13}
    assert RunFiles(progress, trials=trials).seconds_left == 30.0
    assert RunFiles(progress, {}).seconds_left is None
    done = RunFiles(progress, {"score": 1}, trials=trials)
    assert done.seconds_left is None
