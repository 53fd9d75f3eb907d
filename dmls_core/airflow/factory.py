"""The DAG factory: one DAG per job of a shard, built from local JSON alone."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pendulum
from airflow.sdk import DAG, BaseOperator, get_parsing_context

from dmls_core.airflow.jobs.engine import choose_engine
from dmls_core.airflow.jobs.job import PARAM
from dmls_core.airflow.jobs.params import run_param
from dmls_core.airflow.lateness import deadline_alert
from dmls_core.airflow.priority import LEADERS_FIRST
from dmls_core.airflow.settings import airflow_settings
from dmls_core.airflow.task_id import TaskId
from dmls_core.airflow.tasks.approve import ApproveOperator
from dmls_core.airflow.tasks.evaluate import EvaluateOperator
from dmls_core.airflow.tasks.plan import PlanOperator
from dmls_core.airflow.tasks.promote import PromoteOperator, StageOperator
from dmls_core.airflow.tasks.register import RegisterOperator
from dmls_core.airflow.tasks.validate import ValidateOperator
from dmls_core.airflow.telling.status import report_failure
from dmls_core.airflow.timetable import make_timetable
from dmls_core.spec import Spec

log = logging.getLogger(__name__)

BEGINNING = pendulum.datetime(1970, 1, 1)
"""Start date of every job's DAG. Its timetable alone keeps runs from before the admission: Airflow would
end a run without running its tasks if its interval began before the start date, as the first one's does."""

RETRIES = 3
RETRY_DELAY = pendulum.duration(seconds=5)


def load_shard(file: str) -> dict[str, DAG]:
    """Build the DAGs of the shard ``file``; while a task runs, the one DAG that it belongs to.

    A job that cannot be built becomes a DAG whose only task says why: it hides no other.
    """
    entries: dict[str, Any] = json.loads(Path(file).with_suffix(".json").read_text())
    wanted = get_parsing_context().dag_id
    if wanted in entries:
        entries = {wanted: entries[wanted]}
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
    """Build the DAG of one job: validate, plan, search, evaluate, register, approve, stage, promote.

    Args:
        dag_id: ``dmls.<team>.<job>``.
        entry: the job's ``record`` and ``spec`` as JSON; read as it is, since parsing must be quick.
    """
    record, spec = entry["record"], entry["spec"]
    models = [model["name"] for model in spec["models"]]
    with DAG(
        dag_id,
        schedule=make_timetable(dag_id, record, spec),
        start_date=BEGINNING,
        catchup=False,
        max_active_runs=1,
        tags={"dmls", f"team:{record['team']}", *models},
        description=f"Version {record['version']}: {spec['n_trials']} trials of {', '.join(models)}",
        default_args={
            "owner": record["team"],
            "retries": RETRIES,
            "retry_delay": RETRY_DELAY,
        },
        is_paused_upon_creation=False,
        render_template_as_native_obj=False,
        deadline=deadline_alert(record, spec),
    ) as dag:
        plan = PlanOperator(task_id=TaskId.PLAN)
        search = (
            _trainer()
            .partial(
                task_id=TaskId.SEARCH,
                pool=_pool(spec),
                weight_rule=LEADERS_FIRST,
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
    # Only now: each task would carry a copy, which costs seven times all else that a DAG costs to parse.
    dag.params[PARAM] = run_param()
    return dag


def _trainer() -> type[BaseOperator]:
    """Return the operator of the platform's runner; the other one's libraries are not imported."""
    if airflow_settings().runner == "docker":
        from dmls_core.airflow.trainer.docker import TrainerOperator

        return TrainerOperator
    from dmls_core.airflow.trainer.process import ProcessTrainerOperator

    return ProcessTrainerOperator


def _pool(spec: dict[str, Any]) -> str:
    """Return the pool whose slots stand for what the search occupies."""
    gpus = airflow_settings().gpus
    engine = spec["resources"]["engine"]
    if engine == "auto" and gpus > 0:
        engine = choose_engine(Spec.from_json(spec), gpus)
    return "dmls_gpu" if engine == "gpu" else "dmls_cpu"
