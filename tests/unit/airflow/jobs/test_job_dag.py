"""The factory: what a parse yields, what it must not need, and that it yields it again."""

from __future__ import annotations

import json

import pytest

from tests.support.dag_parsing import parse_dags, parse_dags_offline

SHIPPED = ["dmls.monitor", "dmls.repair", "dmls.score"]
"""DAGs that come with DMLS, beside the intake."""


SCHEDULED = b"""
model = "random-forest-classifier"
[columns]
target = "y"
[data]
path = "data/{date}.csv"
[schedule]
cron = "0 6 * * 1"
timezone = "Europe/Vienna"
deadline = 7200
[owner]
email = "{{7*7}}@example.com"
notify = ["email"]
"""


def test_parsing_needs_no_network_and_is_the_same_for_every_hash_seed(accept, bundle):
    for number in range(5):
        accept("lab", f"job{number}")
    accept("lab", "weekly", spec=SCHEDULED)
    made = bundle()
    made.initialize()

    here, offline = parse_dags(str(made.path)), parse_dags_offline(str(made.path))

    jobs = [*(f"dmls.lab.job{number}" for number in range(5)), "dmls.lab.weekly"]
    assert here["dags"] == ["dmls.intake", *jobs, *SHIPPED]
    assert here["errors"] == {}
    assert here == offline


def test_a_hostile_entry_hides_no_other_dag(accept, bundle):
    accept("lab", "iris")
    accept("lab", "zoo")
    made = bundle()
    made.initialize()
    (path,) = [p for p in made.path.glob("shard_*.json") if "dmls.lab.zoo" in p.read_text()]
    shard = json.loads(path.read_text())
    shard["dmls.lab.zoo"] = {"record": {"admitted": "{{ 7 * 7 }}", "team": 3}, "spec": None}
    path.write_text(json.dumps(shard))

    found = parse_dags(str(made.path))

    assert found["errors"] == {}
    assert found["dags"] == ["dmls.intake", "dmls.lab.iris", "dmls.lab.zoo", *SHIPPED]


def test_only_the_dag_at_hand_is_built_while_a_task_runs(accept, bundle, monkeypatch):
    from airflow.sdk.definitions.context import Context  # noqa: F401 - airflow is importable here

    from dmls_core.airflow.jobs import job_dag

    for number in range(8):
        accept("lab", f"job{number}")
    made = bundle()
    made.initialize()
    (path,) = [p for p in made.path.glob("shard_*.json") if "dmls.lab.job3" in p.read_text()]
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "dmls.lab.job3")

    assert list(job_dag.load_shard(str(path.with_suffix(".py")))) == ["dmls.lab.job3"]


def test_tasks_follow_one_another_and_none_is_templated(accept, bundle):
    from dmls_core.airflow.jobs import job_dag

    accept("lab", "iris")
    made = bundle()
    made.initialize()
    (path,) = [p for p in made.path.glob("shard_*.json") if "dmls.lab.iris" in p.read_text()]

    dag = job_dag.load_shard(str(path))["dmls.lab.iris"]

    order = ["validate", "plan", "search", "evaluate", "register", "approve", "stage", "promote"]
    assert [t.task_id for t in dag.topological_sort()] == order
    assert {t.task_id: list(t.template_fields) for t in dag.tasks} == {name: [] for name in order}
    assert all(t.on_failure_callback for t in dag.tasks if t.task_id != "search")


@pytest.mark.parametrize(("engine", "gpus", "pool"), [("auto", 0, "dmls_cpu"), ("gpu", 1, "dmls_gpu")])
def test_the_search_waits_in_the_pool_of_its_engine(accept, bundle, engine, gpus, pool):
    from dmls_core.airflow.jobs import job_dag

    spec = b'model = "random-forest-classifier"\n[columns]\ntarget = "y"\n[resources]\nengine = "%s"\n'
    accept("lab", "iris", spec=spec % engine.encode())
    made = bundle()
    made.initialize()
    (path,) = [p for p in made.path.glob("shard_*.json") if "dmls.lab.iris" in p.read_text()]

    dag = job_dag.load_shard(str(path))["dmls.lab.iris"]

    assert dag.get_task("search").partial_kwargs["pool"] == pool


def test_runs_of_a_scheduled_job_do_not_overlap_and_none_is_made_for_the_past(accept, bundle):
    from airflow.timetables.base import TimeRestriction

    from dmls_core.airflow.jobs import job_dag

    record = accept("lab", "weekly", spec=SCHEDULED)
    made = bundle()
    made.initialize()
    (path,) = [p for p in made.path.glob("shard_*.json") if "dmls.lab.weekly" in p.read_text()]

    dag = job_dag.load_shard(str(path))["dmls.lab.weekly"]

    assert dag.max_active_runs == 1
    last = dag.timetable.next_dagrun_info(
        last_automated_data_interval=None, restriction=TimeRestriction(dag.start_date, None, dag.catchup)
    )
    assert last.run_after == record.admitted_at
    first = dag.timetable.next_dagrun_info(
        last_automated_data_interval=last.data_interval,
        restriction=TimeRestriction(dag.start_date, None, dag.catchup),
    )
    assert dag.start_date < first.logical_date < record.admitted_at < first.run_after
    assert dag.timetable.summary == "0 6 * * 1 Europe/Vienna"
    (alert,) = dag.deadline
    assert alert.interval.total_seconds() == 7200
    assert alert.callback.serialize() == {
        "path": "dmls_core.airflow.jobs.deadlines.notify_missed_deadline",
        "kwargs": {
            "job": "lab/weekly",
            "owner": {"notify": ["email"], "email": "{{7*7}}@example.com"},
            "seconds": 7200.0,
        },
    }


def test_one_object_param_is_the_dags_and_no_tasks(accept, bundle):
    from airflow.serialization.serialized_objects import DagSerialization

    from dmls_core.airflow.jobs import job_dag
    from dmls_core.airflow.runs.job import PARAM

    accept("lab", "iris")
    made = bundle()
    made.initialize()
    (path,) = [p for p in made.path.glob("shard_*.json") if "dmls.lab.iris" in p.read_text()]

    dag = job_dag.load_shard(str(path))["dmls.lab.iris"]

    assert list(dag.params) == [PARAM]
    assert all(not task.params for task in dag.tasks)
    again = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    form = again.params.get_param(PARAM)
    assert form.value == {}
    assert form.schema["additionalProperties"] is False
    assert set(form.schema["properties"]) == {"deploy", "n_trials", "seed", "data", "hyperparameters"}
