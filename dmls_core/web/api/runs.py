"""A job's runs: live while they go, side by side when they are over."""

from __future__ import annotations

from typing import Annotated, Any

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.common.db.common import SessionDep
from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from dmls_core.airflow.task_id import TaskId
from dmls_core.store import layout
from dmls_core.web.airflow_calls import AirflowCalls
from dmls_core.web.api.passed import pass_page
from dmls_core.web.backend import open_store
from dmls_core.web.index.waits import Lease, read_leases
from dmls_core.web.job.differences import differences
from dmls_core.web.job.history import MAX_RUNS, Run, Task, read_run, read_runs, read_tasks
from dmls_core.web.job.log_tail import read_log_tail
from dmls_core.web.job.run_files import RunFiles, read_run_files
from dmls_core.web.security import JobCaller, job_may

router = APIRouter(prefix="/jobs/{team}/{name}/runs", tags=["Runs"])

RunId = Annotated[str, Path(max_length=250, description="Airflow's name of the run.")]
RunViewer = Annotated[JobCaller, Depends(job_may("GET", DagAccessEntity.RUN))]
LogReader = Annotated[JobCaller, Depends(job_may("GET", DagAccessEntity.TASK_LOGS))]

PASSED_THROUGH = {"report": layout.REPORT, "validation": layout.DATA_DOCS}
"""Page -> its file in the run's folder."""


class RunDetails(BaseModel):
    """One run, as far as it is."""

    run: Run
    tasks: list[Task]
    progress: dict[str, Any] | None
    seconds_left: float | None
    trials: list[dict[str, Any]]
    result: dict[str, Any] | None
    error: dict[str, Any] | None
    runner: dict[str, Any] | None
    has_report: bool
    has_validation: bool = Field(description="Whether Great Expectations' Data Docs are there.")
    leases: list[Lease] = Field(description="The run's trainers that are at work.")


class Row(BaseModel):
    """Something that is not the same in all runs."""

    key: str
    values: list[Any]


class Comparison(BaseModel):
    """Runs side by side."""

    runs: list[Run]
    scores: list[Row] = Field(description="Metrics on the holdout; all of them.")
    differences: list[Row] = Field(description="Parameters, data and versions that differ.")


@router.get("", summary="List a job's runs")
def list_runs(
    caller: RunViewer, session: SessionDep, limit: Annotated[int, Query(ge=1, le=MAX_RUNS)] = 50
) -> list[Run]:
    """Return the latest runs, the newest first."""
    return read_runs(session, caller.team, caller.name, limit=limit)


@router.get("/compare", summary="Compare runs")
def compare_runs(
    caller: RunViewer,
    session: SessionDep,
    run: Annotated[list[str], Query(min_length=2, max_length=8, description="Runs, by `run_id`.")],
) -> Comparison:
    """Return what differs between runs, and all their scores."""
    return comparison(session, caller, run)


def comparison(session: SessionDep, caller: JobCaller, run_ids: list[str]) -> Comparison:
    """Put runs side by side.

    Raises:
        NotFoundError: one of them does not exist.
    """
    runs = [read_run(session, caller.team, caller.name, run_id) for run_id in run_ids]
    results = [(_files(caller, run).result if run.run_key else None) or {} for run in runs]
    metrics = [result.get("holdout", {}).get("metrics", {}) for result in results]
    facts = [
        {
            "version": run.version,
            "interval": " to ".join(run.interval) if run.interval else None,
            **{key: result.get(key) for key in ("model", "engine", "n_trials", "seed")},
            "parameters": result.get("best_params", {}),
            "data": {key: result.get("data", {}).get(key) for key in ("rows", "hash")},
            "versions": result.get("versions", {}),
        }
        for run, result in zip(runs, results, strict=True)
    ]
    names = sorted(set().union(*metrics))
    return Comparison(
        runs=runs,
        scores=[Row(key=name, values=[found.get(name) for found in metrics]) for name in names],
        differences=[Row(key=row.key, values=list(row.values)) for row in differences(*facts)],
    )


@router.get("/{run_id}", summary="Show a run")
def run_details(caller: RunViewer, session: SessionDep, run_id: RunId) -> RunDetails:
    """Return a run: its tasks, its trials as they end, and its result once it is there."""
    return run_view(session, caller, run_id)


def run_view(session: SessionDep, caller: JobCaller, run_id: str) -> RunDetails:
    """Return all of one run.

    Raises:
        NotFoundError: there is none of that name.
    """
    run = read_run(session, caller.team, caller.name, run_id)
    tasks = read_tasks(session, caller.team, caller.name, run_id)
    files = _files(caller, run)
    return RunDetails(
        run=run,
        tasks=tasks,
        progress=files.progress,
        seconds_left=files.seconds_left,
        trials=files.trials,
        result=files.result,
        error=files.error if not files.result else None,
        runner=files.runner,
        has_report=files.has_report,
        has_validation=files.has_validation,
        leases=[lease for lease in read_leases(session, caller.dag_id) if lease.run_id == run_id],
    )


@router.get("/{run_id}/log", summary="Read the end of a run's log")
async def run_log(
    caller: LogReader,
    request: Request,
    run_id: RunId,
    task: Annotated[str, Query(max_length=100)] = TaskId.SEARCH.value,
    lines: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> list[str]:
    """Return the last lines of a task's latest try, as Airflow has them."""
    return await read_log_tail(AirflowCalls(request), caller.dag_id, run_id, task, lines)


@router.get("/{run_id}/report", summary="Show a run's report", response_class=Response)
def run_report(caller: RunViewer, session: SessionDep, run_id: RunId) -> Response:
    """Pass the report through; the browser keeps it away from the page that frames it."""
    return _pass_through(caller, session, run_id, "report")


@router.get("/{run_id}/validation", summary="Show the validation of a run's data", response_class=Response)
def run_validation(caller: RunViewer, session: SessionDep, run_id: RunId) -> Response:
    """Pass Great Expectations' Data Docs through, likewise kept away from the page that frames it."""
    return _pass_through(caller, session, run_id, "validation")


def _pass_through(caller: JobCaller, session: SessionDep, run_id: str, page: str) -> Response:
    run = read_run(session, caller.team, caller.name, run_id)
    key = layout.run_folder(caller.team, caller.name, run.run_key or "none") + PASSED_THROUGH[page]
    return pass_page(key, f"{page} of this run", "a finished run has one")


def _files(caller: JobCaller, run: Run) -> RunFiles:
    if run.run_key is None:
        return RunFiles(None, None, None, None, [])
    return read_run_files(open_store(), caller.team, caller.name, run.run_key)
