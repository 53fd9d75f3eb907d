"""REST API of a job's runs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request

from dmls_core.airflow.metadata import SessionDep
from dmls_core.airflow.task_id import TaskId
from dmls_core.web.dependencies import LogViewer, RunId, RunViewer, airflow_api
from dmls_core.web.services import comparison, runs
from dmls_core.web.services.airflow_api import read_log_tail
from dmls_core.web.services.comparison import Comparison
from dmls_core.web.services.runs import MAX_RUNS, Run, RunDetails
from dmls_core.web.services.store_access import open_store

router = APIRouter(prefix="/jobs/{team}/{name}/runs", tags=["Runs"])


@router.get("", summary="List a job's runs")
def list_runs(
    caller: RunViewer,
    session: SessionDep,
    limit: Annotated[int, Query(ge=1, le=MAX_RUNS, description="Runs to return at most.")] = 50,
) -> list[Run]:
    """Return the latest runs, newest first."""
    return runs.read_runs(session, caller.team, caller.name, limit=limit)


@router.get("/compare", summary="Compare runs")
def compare_runs(
    caller: RunViewer,
    session: SessionDep,
    run: Annotated[list[str], Query(min_length=2, max_length=8, description="Runs, by `run_id`.")],
) -> Comparison:
    """Return the scores of some runs, and what differs between them."""
    return comparison.compare_runs(session, open_store(), caller.team, caller.name, run)


@router.get("/{run_id}", summary="Show a run")
def show_run(caller: RunViewer, session: SessionDep, run_id: RunId) -> RunDetails:
    """Return a run with its tasks, the trials that have ended, and its result once it has one."""
    return runs.read_run_details(session, open_store(), caller.team, caller.name, run_id)


@router.get("/{run_id}/log", summary="Read the end of a task's log")
async def show_log(
    caller: LogViewer,
    request: Request,
    run_id: RunId,
    task: Annotated[str, Query(max_length=100, description="ID of the task.")] = TaskId.SEARCH.value,
    lines: Annotated[int, Query(ge=1, le=1000, description="Lines to return at most.")] = 200,
) -> list[str]:
    """Return the last lines of a task's latest try, as Airflow has them."""
    return await read_log_tail(airflow_api(request), caller.dag_id, run_id, task, lines)
