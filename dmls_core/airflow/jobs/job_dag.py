"""Build the DAGs of jobs, from the local JSON of a shard and nothing else.

The generated DAG files on the disks of running platforms import ``load_shard``.
"""

from __future__ import annotations

import logging
from typing import Any

import pendulum
from airflow.sdk import DAG, BaseOperator, Param, get_parsing_context

from dmls_core.airflow.jobs.deadlines import deadline_alert
from dmls_core.airflow.jobs.priority import LEADER_PRIORITY
from dmls_core.airflow.jobs.tasks.approve import ApproveOperator
from dmls_core.airflow.jobs.tasks.evaluate import EvaluateOperator
from dmls_core.airflow.jobs.tasks.plan import PlanOperator
from dmls_core.airflow.jobs.tasks.promote import PromoteOperator
from dmls_core.airflow.jobs.tasks.register import RegisterOperator
from dmls_core.airflow.jobs.tasks.stage import StageOperator
from dmls_core.airflow.jobs.tasks.validate import ValidateOperator
from dmls_core.airflow.jobs.timetables import make_timetable
from dmls_core.airflow.retry import RETRY
from dmls_core.airflow.runners.runner import load_runner
from dmls_core.airflow.runners.trainer import choose_pool
from dmls_core.airflow.runs.job import PARAM
from dmls_core.airflow.runs.status import report_failure
from dmls_core.airflow.settings import airflow_settings
from dmls_core.airflow.shards import read_shard
from dmls_core.airflow.task_id import TaskId
from dmls_core.html.formats import at_most

log = logging.getLogger(__name__)

START_DATE = pendulum.datetime(1970, 1, 1)
"""Before every interval: Airflow runs no task of earlier ones. The timetable prevents premature runs."""

PARAM_SCHEMA: dict[str, Any] = {
    "type": ["object", "null"],
    "title": "For this run only",
    "additionalProperties": False,
    "properties": {
        "hyperparameters": {"type": "object"},
        "n_trials": {"type": "integer"},
        "seed": {"type": "integer"},
        "data": {"type": "object"},
        "deploy": {"type": "boolean"},
    },
}
"""A user's changes for one run; the task ``validate`` checks the values as a spec is checked."""


def load_shard(file: str) -> dict[str, DAG]:
    """Build the DAGs of the shard ``file``; while a task runs, only the DAG of that task.

    A job that cannot be built becomes a DAG whose documentation gives the reason: it hides no other DAG.
    """
    task_dag = get_parsing_context().dag_id
    entries = read_shard(file, task_dag)
    if task_dag in entries:
        entries = {task_dag: entries[task_dag]}
    return {dag_id: _build_or_explain(dag_id, entry) for dag_id, entry in entries.items()}


def _build_or_explain(dag_id: str, entry: dict[str, Any]) -> DAG:
    try:
        return build_dag(dag_id, entry)
    except Exception as error:
        log.exception("cannot build %s", dag_id)
        with DAG(
            dag_id,
            schedule=None,
            tags={"dmls", "broken"},
            doc_md=f"DMLS could not build this DAG: `{error!r}`",
        ) as dag:
            BaseOperator(task_id="broken")
        return dag


def build_dag(dag_id: str, entry: dict[str, Any]) -> DAG:
    """Build a job's DAG from its record and spec (JSON), not validated again to keep parsing fast."""
    record, spec = entry["record"], entry["spec"]
    models = [model["name"] for model in spec["models"]]
    with DAG(
        dag_id,
        # A retired job has a DAG until its runs have ended.
        schedule=make_timetable(dag_id, record, spec) if record["state"] == "active" else None,
        start_date=START_DATE,
        catchup=False,
        max_active_runs=1,
        tags={"dmls", f"team:{record['team']}", *models},
        description=f"Version {record['version']}: "
        f"{at_most(spec['n_trials'], 'trial')} of {', '.join(models)}",
        default_args={"owner": record["team"], **RETRY},
        is_paused_upon_creation=False,
        render_template_as_native_obj=False,
        deadline=deadline_alert(record, spec),
        access_control=entry.get("access_control"),
    ) as dag:
        plan = PlanOperator(task_id=TaskId.PLAN)
        search = (
            load_runner(airflow_settings())
            .operator_class.partial(
                task_id=TaskId.SEARCH,
                pool=choose_pool(spec, airflow_settings().gpus),
                weight_rule=LEADER_PRIORITY,
                on_failure_callback=report_failure,
            )
            .expand(plan=plan.output)
        )
        (
            ValidateOperator(task_id=TaskId.VALIDATE)
            >> plan
            >> search
            >> EvaluateOperator(task_id=TaskId.EVALUATE, trigger_rule="none_failed_min_one_success")
            >> RegisterOperator(task_id=TaskId.REGISTER)
            >> ApproveOperator(task_id=TaskId.APPROVE)
            >> StageOperator(task_id=TaskId.STAGE)
            >> PromoteOperator(task_id=TaskId.PROMOTE)
        )
    # Added last: each task would copy the Param, which costs seven times the rest of the DAG's parse.
    dag.params[PARAM] = _run_param()
    return dag


def _run_param() -> Param:
    """Return the only Param: Airflow validates each about ten times, so it is one object for all changes."""
    return Param(
        {},
        description='Such as {"n_trials": 50, "seed": 7, "data": {"window": 4}, "hyperparameters": '
        '{"max_depth": {"min": 2, "max": 9}}, "deploy": true}. It does not change the job.',
        **PARAM_SCHEMA,
    )
