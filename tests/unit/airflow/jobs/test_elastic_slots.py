"""Airflow's own scheduler gives slots to helpers, and its API ends the tasks of those that wait."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.api_fastapi.execution_api.datamodels.taskinstance import TISkippedDownstreamTasksStatePayload
from airflow.api_fastapi.execution_api.routes.task_instances import ti_skip_downstream
from airflow.jobs.job import Job
from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
from airflow.models.pool import Pool
from airflow.models.taskinstance import TaskInstance
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from dmls_core.airflow.jobs.priority import helper_weight, weight_at
from tests.support.airflow_database import NOW, add_dag, add_run, add_task

FIRST, SECOND = "dmls.lab.first", "dmls.lab.second"


@pytest.fixture
def searches(session: Session) -> Session:
    """Two searches with two helpers each wait for the three slots of a pool; the second arrived later."""
    session.add(Pool(pool="dmls_cpu", slots=3, include_deferred=True, description=""))
    for later, dag_id in enumerate((FIRST, SECOND)):
        add_dag(session, dag_id)
        add_run(session, dag_id, "run", "running", hours=later)
        for index in range(3):
            weight = helper_weight(index) if index else weight_at(NOW.timestamp() + 3600 * later)
            values: dict[str, Any] = {"map_index": index, "priority_weight": weight}
            add_task(session, dag_id, "run", "search", "scheduled", **values)
    session.commit()
    return session


def give_slots(session: Session) -> list[tuple[str, int]]:
    """Return the tasks that the scheduler starts, and leave them waiting for their trainers."""
    scheduler = SchedulerJobRunner(Job())
    started = scheduler._executable_task_instances_to_queued(max_tis=32, session=session)
    found = [(task.dag_id, task.map_index) for task in started]
    for dag_id, index in found:
        set_state(session, dag_id, index, "deferred")
    return found


def set_state(session: Session, dag_id: str, index: int, state: str) -> None:
    query = update(TaskInstance).where(TaskInstance.dag_id == dag_id, TaskInstance.map_index == index)
    session.execute(query.values(state=state))
    session.commit()


def test_runs_go_before_helpers_and_a_slot_that_is_given_back_goes_to_the_run_that_waits(searches: Session):
    set_state(searches, SECOND, 0, "none")  # not submitted yet
    set_state(searches, SECOND, 1, "none")
    set_state(searches, SECOND, 2, "none")
    assert give_slots(searches) == [(FIRST, 0), (FIRST, 1), (FIRST, 2)]

    for index in range(3):
        set_state(searches, SECOND, index, "scheduled")
    assert give_slots(searches) == []
    set_state(searches, FIRST, 2, "scheduled")  # its trainer has left: the task resumes
    assert give_slots(searches) == [(SECOND, 0)]

    set_state(searches, FIRST, 1, "scheduled")  # and again, while only helpers wait
    assert give_slots(searches) == [(FIRST, 1)]
    set_state(searches, FIRST, 0, "success")
    assert give_slots(searches) == [(SECOND, 1)], "the second trainer of a run before the third of another"


def test_a_leader_that_has_its_result_ends_the_helpers_that_wait(searches: Session):
    assert give_slots(searches) == [(FIRST, 0), (SECOND, 0), (FIRST, 1)]
    leader = searches.scalar(select(TaskInstance).where(TaskInstance.dag_id == FIRST))
    assert leader is not None

    payload = TISkippedDownstreamTasksStatePayload(tasks=[("search", 1), ("search", 2)])
    ti_skip_downstream(leader.id, payload, searches)
    searches.commit()

    columns = TaskInstance.dag_id, TaskInstance.map_index, TaskInstance.state
    states = {(dag_id, index): state for dag_id, index, state in searches.execute(select(*columns))}
    assert [states[FIRST, index] for index in range(3)] == ["deferred", "skipped", "skipped"]
    assert [states[SECOND, index] for index in range(3)] == ["deferred", "scheduled", "scheduled"]
