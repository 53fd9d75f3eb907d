"""Queries of Airflow's metadata database, on SQLite in memory."""

from __future__ import annotations

import json
from datetime import timedelta

from airflow.models.dagrun import DagRun
from airflow.models.hitl import HITLDetail
from airflow.models.log import Log
from airflow.models.pool import Pool
from airflow.models.trigger import Trigger
from airflow.models.variable import Variable
from airflow.models.xcom import XComModel
from sqlalchemy import insert, select, text, update
from sqlalchemy.orm import Session

from dmls_core.airflow import database
from tests.support.airflow_database import NOW, add_dag, add_run, add_task

DAG, OTHER_JOB, OTHER = "dmls.lab.iris", "dmls.lab.wine", "another.dag"


def test_the_state_of_a_dag(session: Session):
    add_dag(session, DAG, is_paused=True, next_dagrun_create_after=NOW, timetable_description="Every hour")
    add_dag(session, OTHER)

    found = database.dag_state(session, DAG)

    assert found is not None
    assert (found.paused, found.next_run, found.schedule, found.stale) == (True, NOW, "Every hour", False)
    assert database.dag_state(session, "dmls.no.such") is None
    assert list(database.dag_states(session)) == [DAG]


def test_roles_of_fab(session: Session):
    session.execute(text("CREATE TABLE ab_role (id INTEGER, name TEXT)"))
    session.execute(text("INSERT INTO ab_role VALUES (1, 'Admin'), (2, 'shop')"))
    assert database.fab_roles(session) == {"Admin", "shop"}


def test_runs_are_newest_first_and_unfinished_ones_know_whether_their_dag_is_paused(session: Session):
    add_dag(session, DAG, is_paused=True)
    add_dag(session, OTHER)
    add_run(session, DAG, "first", "success", 0)
    add_run(session, DAG, "second", "queued", 1)
    add_run(session, OTHER, "theirs", "queued")

    assert [run.run_id for run in database.dag_runs(session, DAG, limit=9)] == ["second", "first"]
    assert [run.run_id for run in database.dag_runs(session, DAG, limit=9, run_id="first")] == ["first"]
    assert database.unfinished_runs(session) == [(DAG, "queued", True)]


def test_tasks_are_filtered_counted_and_ordered_by_priority(session: Session):
    add_dag(session, DAG)
    add_run(session, DAG, "r", "running")
    add_task(session, DAG, "r", "search", "scheduled", map_index=0)
    add_task(session, DAG, "r", "search", "running", map_index=1, priority_weight=5, start_date=NOW)
    add_task(session, DAG, "r", "evaluate", "success", pool="default_pool")

    running = database.task_instances(session, dag_id=DAG, task_id="search", states=["running"])

    assert [task.map_index for task in running] == [1]
    assert len(database.task_instances(session, dag_id=DAG, run_id="r")) == 3
    tasks = database.tasks_by_priority(session, "search", ["scheduled", "running"])
    assert tasks == [
        (DAG, "dmls_cpu", "running", NOW, "", True, False, ""),
        (DAG, "dmls_cpu", "scheduled", None, "", False, False, ""),
    ]
    assert database.task_counts(session) == {("dmls_cpu", "running"): 1, ("dmls_cpu", "scheduled"): 1}


def test_a_deferred_task_has_the_class_of_its_trigger(session: Session):
    add_dag(session, DAG)
    add_run(session, DAG, "r", "running")
    session.add(Trigger(classpath="a.Trigger", kwargs={}))
    session.flush()
    waits = session.scalars(select(Trigger.id)).one()
    add_task(session, DAG, "r", "search", "deferred", map_index=0, trigger_id=waits)
    add_task(session, DAG, "r", "search", "running", map_index=1)

    tasks = database.tasks_by_priority(session, "search", ["deferred", "running"])
    assert [(task.state, task.trigger) for task in tasks] == [("deferred", "a.Trigger"), ("running", "")]
    found = database.task_instances(session, task_id="search", except_triggers=["a.Trigger", "c.Trigger"])
    assert [task.map_index for task in found] == [1]
    assert len(database.task_instances(session, task_id="search", except_triggers=["b.Trigger"])) == 2


def test_a_dag_is_at_work_if_a_worker_the_triggerer_or_a_person_has_a_task_of_it(session: Session):
    for name, state in {
        "a": "deferred",
        "b": "awaiting_input",
        "c": "scheduled",
        "d": "up_for_retry",
    }.items():
        add_dag(session, f"dmls.lab.{name}", is_paused=True)
        add_run(session, f"dmls.lab.{name}", "r", "running")
        add_task(session, f"dmls.lab.{name}", "r", "search", state)

    assert database.dags_at_work(session) == {"dmls.lab.a", "dmls.lab.b"}


def test_slots_of_pools(session: Session):
    session.add_all(
        [
            Pool(pool="dmls_gpu", slots=2, include_deferred=False),
            Pool(pool="default_pool", slots=9, include_deferred=False),
        ]
    )

    assert database.pool_slots(session) == {"default_pool": 9, "dmls_gpu": 2}
    assert database.pool_slots(session, ours=True) == {"dmls_gpu": 2}


def test_return_values_since_a_time_and_xcoms_of_runs(session: Session):
    add_dag(session, DAG)
    add_run(session, DAG, "r", "success")
    add_task(session, DAG, "r", "evaluate", "success")
    values = (("return_value", {"score": 0.9}, NOW), ("inputs", {"run_key": "k"}, NOW + timedelta(hours=1)))
    for key, value, timestamp in values:
        row = {"dag_run_id": 1, "dag_id": DAG, "run_id": "r", "task_id": "evaluate", "map_index": -1}
        session.execute(insert(XComModel).values(key=key, value=value, timestamp=timestamp, **row))

    (found,) = database.return_values(session, ["evaluate"], None)

    assert (found.run_id, found.value, found.timestamp) == ("r", {"score": 0.9}, NOW)
    assert database.return_values(session, ["evaluate"], NOW) == []
    xcoms = database.xcoms_of_runs(session, DAG, ["r"], ["evaluate"], ["inputs", "return_value"])
    assert {xcom.key for xcom in xcoms} == {"inputs", "return_value"}


def test_events_of_the_audit_log_are_newest_first(session: Session):
    for event in ("dmls_rollback", "patch_dag", "cli_scheduler"):
        entry = {"event": event, "dag_id": DAG, "owner": "ada", "extra": json.dumps({"version": 1})}
        session.execute(insert(Log).values(dttm=NOW, **entry))

    found = database.audit_events(session, DAG, ["dmls_rollback", "patch_dag"], 5)

    assert [(event.event, event.who) for event in found] == [("patch_dag", "ada"), ("dmls_rollback", "ada")]
    assert json.loads(found[0].extra or "") == {"version": 1}


def test_the_version_of_the_bundle_comes_from_its_entry_in_the_configuration(session: Session):
    assert database.bundle_version(session) == "v7"


def test_existing_runs_are_those_of_jobs(session):
    for dag_id in (DAG, OTHER):
        add_dag(session, dag_id)
        add_run(session, dag_id, "submission-1__a", "queued")
    assert database.existing_runs(session, ["submission-1__a", "submission-2__b"]) == {
        (DAG, "submission-1__a")
    }
    assert database.existing_runs(session, []) == set()


def test_the_waiting_runs_of_a_team(session: Session):
    others = {"dmls.lab.iris": "b", "dmls.labs.iris": "c", "other.lab.iris": "d"}
    for dag_id, run in (("dmls.lab.wine", "a"), *others.items()):
        add_dag(session, dag_id)
        add_run(session, dag_id, run, "running")
    add_task(session, "dmls.lab.wine", "a", "search", None, priority_weight=990)
    add_task(session, DAG, "b", "search", "scheduled", priority_weight=970, map_index=0)
    add_task(session, DAG, "b", "search", "scheduled", priority_weight=960, map_index=1)
    add_task(session, "dmls.labs.iris", "c", "search", None, priority_weight=950)
    add_task(session, "other.lab.iris", "d", "search", None, priority_weight=940)
    add_task(session, DAG, "b", "validate", None, priority_weight=930)
    for hour, run in enumerate(("running", "success", "deferred", "backfill__x"), 1):
        add_run(session, DAG, run, "running", hour)
        state = None if run == "backfill__x" else run
        add_task(session, DAG, run, "search", state, priority_weight=920)

    assert database.waiting_searches(session, "lab") == (2, 970)
    assert database.waiting_searches(session, "new") == (0, None)


def test_the_last_durations_of_a_task_by_dag(session: Session):
    add_dag(session, DAG)
    for hour, (state, seconds) in enumerate(
        [("success", 10), ("failed", 99), ("success", 20), ("success", 30)]
    ):
        add_run(session, DAG, str(hour), "success", hour)
        start = NOW + timedelta(hours=hour)
        times = {"start_date": start, "end_date": start + timedelta(seconds=seconds)}
        add_task(session, DAG, str(hour), "search", state, **times)
        add_task(session, DAG, str(hour), "search", "success", map_index=1, **times)

    assert database.last_durations(session, "search", [DAG, "dmls.lab.new"], 2) == {DAG: [30, 20]}


def test_unanswered_approvals(session: Session):
    for run_id, dag_id, state in (
        ("asked", DAG, "awaiting_input"),
        ("answered", OTHER_JOB, "awaiting_input"),
    ):
        add_run(session, dag_id, run_id, "running")
        add_task(session, dag_id, run_id, "approve", state)
    for task in database.task_instances(session, task_id="approve"):
        answered = NOW if task.run_id == "answered" else None
        detail = HITLDetail(
            ti_id=task.id, options=["Approve", "Reject"], subject="Deploy?", params={}, responded_at=answered
        )
        session.add(detail)
    session.flush()
    assert database.unanswered_approvals(session) == {DAG}


def test_runs_that_are_dated_in_the_future(session: Session):
    def add(dag_id: str, run_id: str, state: str, hours: int, run_type: str = "scheduled") -> None:
        add_run(session, dag_id, run_id, state, hours)
        session.execute(update(DagRun).where(DagRun.run_id == run_id).values(run_type=run_type))

    add(DAG, "now", "running", 0)
    add(DAG, "finished", "success", 3)
    add(DAG, "of a user", "queued", 4, "manual")
    assert database.runs_ahead(session, NOW) == {}
    add(DAG, "queued", "queued", 1)
    add(DAG, "running", "running", 2)
    add("dmls.intake", "intake", "queued", 1, "asset_triggered")
    assert database.runs_ahead(session, NOW) == {
        DAG: NOW + timedelta(hours=2),
        "dmls.intake": NOW + timedelta(hours=1),
    }


def test_the_variables_of_a_prefix_are_those_of_no_team(session: Session):
    for key, team in (
        ("dmls_key.1", None),
        ("dmls_key.2", None),
        ("dmls_key.3", "lab"),
        ("dmlsxkey.4", None),
    ):
        session.add(Variable(key, key[-1], team_name=team))
    session.flush()
    assert database.variables(session, prefix="dmls_key.") == {"dmls_key.1": "1", "dmls_key.2": "2"}
    assert database.variables(session, key="dmls_key.2") == {"dmls_key.2": "2"}
    assert database.variables(session, key="dmls_key.3") == {}
