"""The task ``search``: start one trainer, and leave the wait for its end to the triggerer."""

from __future__ import annotations

import json
import logging
import threading
import time
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, NoReturn

from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger
from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from airflow.sdk.types import TaskInstance

from dmls_core.airflow.runners.gpu_placement import GpusBusyError
from dmls_core.airflow.runners.gpu_trigger import GpuTrigger
from dmls_core.airflow.runners.helper_trigger import HelperTrigger
from dmls_core.airflow.runners.runner import Runner, load_runner
from dmls_core.airflow.runners.trainer import KEY_LABEL, Trainer, make_trainer, trainer_labels
from dmls_core.airflow.runners.trainer_trigger import TrainerTrigger
from dmls_core.airflow.runs.job import Job, job_of, read_result
from dmls_core.airflow.runs.status import StatusReporter
from dmls_core.airflow.settings import airflow_settings, open_root
from dmls_core.airflow.task_id import TaskId
from dmls_core.errors import DmlsError, ObjectMissingError, RunnerError
from dmls_core.search.study.elastic import JOIN_DELAY_SECONDS, joining
from dmls_core.store import Store, layout
from dmls_core.store.waiting_queue import dequeue, waiting_since

log = logging.getLogger(__name__)

ASK_SECONDS = 2.0
"""Longest wait for Airflow's answer; without one, as while its API server restarts, a retry is expected."""


class TrainerOperator(BaseOperator):
    """The task ``search``: start one trainer and defer to its trigger until it has ended.

    The leader produces the result. A helper joins the search while its pool has idle slots. It leaves for a
    run that waits, and its task then waits for a slot again, behind all runs.

    A runner subclasses it and implements ``start``. Nothing is templated or unpickled: the trainer answers
    with ``result.json`` or ``error.json`` in the store. ``plan`` is the worker's entry in the result of the
    task ``plan``.
    """

    template_fields = ()

    def __init__(self, *, plan: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan = plan
        self._reporter: StatusReporter | None = None
        self._task: Any = None
        self._runner: Runner | None = None
        self._key = ""

    @abstractmethod
    def start(self, trainer: Trainer, context: Context) -> None:
        """Start ``dmls`` with the trainer's arguments and environment under ``trainer.key``, and return.

        End trainers of earlier tries first: their keys begin with ``earlier_tries(trainer.key)``. The trainer
        must survive this process. Two calls at once with the same key start one trainer.

        Raises:
            GpusBusyError: no GPU is free. The task waits, without a worker, until ``Runner.survey_gpus``
                has one.
            RunnerError: the trainer cannot be started.
        """

    def execute(self, context: Context) -> Any:
        """Start the trainer, unless an interrupted attempt of the same try has, and defer."""
        if self.plan.get("auto"):
            # Until then the leader replaces the progress of an earlier attempt.
            self._join_later()
        return self._start_or_adopt(context, {"since": time.time()})

    def join(self, context: Context, event: object = None) -> dict[str, Any]:
        """Start a helper's trainer if the search needs one, look again later, or return if it is over."""
        job, store = job_of(context), open_root(airflow_settings())
        progress: dict[str, Any] | None = None
        # Not written yet, or damaged: the search has hardly begun.
        with suppress(ObjectMissingError, ValueError):
            progress = json.loads(store.get(job.run_file(layout.PROGRESS)))
        when = joining(progress, eager=not self.plan.get("auto"))
        if when == "never":
            self.log.info("The search needs no helper any more")
            return {"worker": self.plan["worker"]}
        if when == "later" or self._others_wait_for_gpus(job, store):
            self._join_later()
        return self._start_or_adopt(context, {"since": time.time()})

    def _others_wait_for_gpus(self, job: Job, store: Store) -> bool:
        """Return whether another run waits for a GPU: Airflow's order of slots does not protect it."""
        return self.plan["engine"] == "gpu" and bool(waiting_since(store, "gpu").keys() - {job.run_key})

    def _join_later(self) -> NoReturn:
        self.defer(trigger=TimeDeltaTrigger(timedelta(seconds=JOIN_DELAY_SECONDS)), method_name="join")

    def start_on_gpu(self, context: Context, event: Mapping[str, Any]) -> None:
        """Start the trainer once a GPU is free; another trainer may be faster, and the task waits again."""
        self._start_or_adopt(context, event)

    def _start_or_adopt(self, context: Context, event: Mapping[str, Any]) -> NoReturn:
        settings = airflow_settings()
        job, store = job_of(context), open_root(settings)
        labels = trainer_labels(job, settings.platform, self.plan, context)
        self._runner, self._key = load_runner(settings), labels[KEY_LABEL]
        self._task, worker = context["task_instance"], self.plan["worker"]
        # Only the leader writes the job's status.
        self._reporter = None if worker else StatusReporter.of(job, store, context["run_id"])
        status = self._reporter.as_json() if self._reporter else None
        if self._runner.exists(self._key):
            self.log.info("The trainer %s was started before: waiting for it", self._key)
        else:
            trainer = make_trainer(job, store, settings, self.plan, labels)
            try:
                self.start(trainer, context)
            except GpusBusyError as busy:
                self.log.info("The run %s", busy)
                if worker:
                    self._join_later()
                if self._reporter:
                    self._reporter.running(f"It {busy}")
                waiting = GpuTrigger(trainer.gpu_memory, event["since"], str(busy), status)
                self.defer(trigger=waiting, method_name="start_on_gpu")
        engine, folder = self.plan["engine"], job.run_file("")
        if worker:
            trigger: TrainerTrigger = HelperTrigger(self._key, folder, worker, engine, time.time())
        else:
            dequeue(store, engine, job.team, job.name, job.run_key)
            trigger = TrainerTrigger(self._key, folder, status=status)
        self.defer(trigger=trigger, method_name="finish")

    def finish(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Return the score, metric, model and engine of ``result.json``, or raise the trainer's error.

        A helper that has left for another run joins again.
        """
        job, store = job_of(context), open_root(airflow_settings())
        if event["code"] != 0:
            reason = event["reason"] or f"exited with code {event['code']}"
            raise_failure(job, store, reason, self.plan, context)
        if worker := self.plan["worker"]:
            left = store.head(job.run_file(layout.leave(worker))) is not None
            return self.join(context) if left else {"worker": worker}
        result = read_result(job, store)
        _end_helpers(self.plan)
        return {name: result[name] for name in ("score", "metric", "model", "engine")}

    def on_kill(self) -> None:
        """Cancel the trainer and report it: when a task is ended from outside, Airflow calls no callback.

        Airflow calls it only until the task is deferred; then it calls the trigger's.
        """
        if self._runner is None:
            return
        ended: list[bool] = []
        # In a thread: the main one may be in the middle of a request to Airflow.
        asking = threading.Thread(target=lambda: ended.append(_is_ended(self._task)), daemon=True)
        asking.start()
        self._runner.stop(self._key)
        if self._reporter:
            asking.join(ASK_SECONDS)
            tries_remain = self._task.try_number <= self._task.max_tries
            self._reporter.interrupted(retried=tries_remain and not any(ended))


def _end_helpers(plan: Mapping[str, Any]) -> None:
    """End the helpers' tasks of this run, most of which wait for a slot: the run would wait for them.

    Airflow's operators skip tasks of their run by an exception, which would hide this task's result.
    """
    if not plan.get("helpers"):
        return
    from airflow.sdk.execution_time.comms import SkipDownstreamTasks
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    helpers = [(TaskId.SEARCH.value, index) for index in range(1, plan["helpers"] + 1)]
    SUPERVISOR_COMMS.send(SkipDownstreamTasks(tasks=helpers))


_ENDED = frozenset({"failed", "skipped", "success", "upstream_failed", "removed"})
"""States that a user gives to a task; one that is killed otherwise is `running` until Airflow retries it."""


def _is_ended(task: TaskInstance) -> bool:
    """Return whether Airflow has ended this task, which is why it is killed; False if it does not answer."""
    try:
        states = task.get_task_states(
            dag_id=task.dag_id, run_ids=[task.run_id], task_ids=[task.task_id], map_index=task.map_index
        )
    except Exception:
        log.exception("cannot ask Airflow why this task is killed")
        return False
    return any(state in _ENDED for run in states.values() for state in run.values())


def raise_failure(job: Job, store: Store, reason: str, plan: Mapping[str, Any], context: Context) -> None:
    """Raise the error of the trainer's ``error.json``, or one with ``reason`` if it wrote none.

    A user's error is an ``AirflowFailException``: a retry would not help. An additional worker that failed on
    its last try raises ``AirflowSkipException``: the leader goes on without it. Others are ``RunnerError``.
    """
    task = context["task_instance"]
    tries_remain = task.try_number <= task.max_tries
    if plan["worker"]:
        message = f"the trainer {reason}: see this task's log; the search goes on without this worker"
        if tries_remain:
            raise RunnerError(message)
        raise AirflowSkipException(message)
    error: dict[str, Any] = {}
    with suppress(ObjectMissingError):
        error = json.loads(store.get(job.run_file("error.json")))
    of_user = error.get("exit_code") == 1
    if of_user or not tries_remain:
        _end_helpers(plan)
    if of_user:
        raise AirflowFailException(error["message"])
    if tries_remain:
        message = f"The trainer {reason}. Airflow starts it again: it resumes at its last trial"
        with suppress(DmlsError):
            StatusReporter.of(job, store, context["run_id"]).running(message)
    why = f": {error['message']}" if error else " and wrote no error.json: see this task's log"
    raise RunnerError(f"the trainer {reason}{why}")
