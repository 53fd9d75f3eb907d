"""Runners start the trainers of the task ``search``.

A runner is one module with a subclass of ``Runner`` and one line under the entry-point group
``dmls.runners``; ``runner`` of the bundle entry names it.
"""

from __future__ import annotations

import json
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, ClassVar, Self

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from airflow.sdk.types import TaskInstance

from dmls_core import extensions
from dmls_core.airflow.job import Job, job_of, read_result
from dmls_core.airflow.runners.trainer import Trainer, make_trainer, worker_environment
from dmls_core.airflow.settings import AirflowSettings, airflow_settings, open_root
from dmls_core.airflow.status import StatusReporter
from dmls_core.errors import DmlsError, ObjectMissingError, RunnerError
from dmls_core.store import Store

__all__ = [
    "IsActive",
    "Runner",
    "Trainer",
    "TrainerExit",
    "TrainerOperator",
    "load_runner",
    "worker_environment",
]


log = logging.getLogger(__name__)

IsActive = Callable[[str, str], bool]
"""``(DAG id, run id)`` -> whether Airflow runs the task ``search`` of that run."""


@dataclass(frozen=True, slots=True)
class TrainerExit:
    """How a trainer ended.

    Attributes:
        code: exit code; negative: minus the number of the signal that ended it.
        reason: continues "the trainer ..." in messages; by default "exited with code ...".
        details: more, as JSON for the run's ``runner.json``; no secrets.
    """

    code: int
    reason: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)


class TrainerOperator(BaseOperator):
    """The task ``search``: start one trainer, forward its log and return a summary of its result.

    A runner subclasses it and implements ``run_trainer`` and ``cancel``. Nothing is templated or unpickled:
    the trainer answers with ``result.json`` or ``error.json`` in the store. ``plan`` is the worker's entry in
    the result of the task ``plan``.
    """

    template_fields = ()

    def __init__(self, *, plan: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan = plan
        self._reporter: StatusReporter | None = None
        self._task: Any = None

    @abstractmethod
    def run_trainer(self, trainer: Trainer, context: Context) -> TrainerExit:
        """Start ``dmls`` with the trainer's arguments and environment, log its output, wait for its end.

        Whatever the trainer started must be gone when this method returns or raises.

        Raises:
            RunnerError: the trainer cannot be started.
        """

    @abstractmethod
    def cancel(self) -> None:
        """End the trainer within 5 seconds, after which Airflow kills the task; do nothing if none runs."""

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the trainer and return the score, metric, model and engine of ``result.json``."""
        settings = airflow_settings()
        job, store = job_of(context), open_root(settings)
        trainer = make_trainer(job, store, settings, self.plan, context)
        self._task = context["task_instance"]
        # Only the leader writes the job's status.
        self._reporter = None if trainer.worker else StatusReporter(job, store, context["run_id"])
        with ProgressWatcher(job, store, self._reporter) if self._reporter else nullcontext():
            done = self.run_trainer(trainer, context)
        record = {"schema": 1, "runner": settings.runner, "exit_code": done.code, **done.details}
        store.put(job.run_file(runner_file(trainer.worker)), json.dumps(record).encode())
        if done.code != 0:
            raise_failure(job, store, done.reason or f"exited with code {done.code}", self.plan, context)
        if trainer.worker:
            return {"worker": trainer.worker}
        result = read_result(job, store)
        return {name: result[name] for name in ("score", "metric", "model", "engine")}

    def on_kill(self) -> None:
        """Cancel the trainer and report it: when a task is ended from outside, Airflow calls no callback."""
        ended: list[bool] = []
        # In a thread: the main one may be in the middle of a request to Airflow.
        asking = threading.Thread(target=lambda: ended.append(is_ended(self._task)), daemon=True)
        asking.start()
        self.cancel()
        if self._reporter:
            asking.join(ASK_SECONDS)
            tries_remain = self._task.try_number <= self._task.max_tries
            self._reporter.interrupted(retried=tries_remain and not any(ended))


ASK_SECONDS = 2.0
"""Longest wait for Airflow's answer; without one, as while its API server restarts, a retry is expected."""

ENDED = frozenset({"failed", "skipped", "success", "upstream_failed", "removed"})
"""States that a user gives to a task; one that is killed otherwise is `running` until Airflow retries it."""


def is_ended(task: TaskInstance) -> bool:
    """Return whether Airflow has ended this task, which is why it is killed; False if it does not answer."""
    try:
        states = task.get_task_states(
            dag_id=task.dag_id, run_ids=[task.run_id], task_ids=[task.task_id], map_index=task.map_index
        )
    except Exception:
        log.exception("cannot ask Airflow why this task is killed")
        return False
    return any(state in ENDED for run in states.values() for state in run.values())


class Runner(ABC):
    """Start trainers: as containers, as processes, on a cluster.

    A package registers its subclass under the entry-point group ``dmls.runners``.
    """

    operator_class: ClassVar[type[TrainerOperator]]
    """Airflow operator of the task ``search``."""

    min_age_seconds: float = 60.0
    """Age below which ``reap`` spares a trainer: Airflow may not show its task as running yet."""

    def __init__(self, settings: AirflowSettings) -> None:
        self.settings = settings

    @abstractmethod
    def check(self) -> list[str]:
        """Return what this machine lacks, each with the remedy; ``dmls doctor`` calls it."""

    @abstractmethod
    def reap(self, is_active: IsActive) -> list[str]:
        """End this platform's trainers whose task no longer runs; return their ids.

        The monitor DAG calls it on every run. It must spare trainers that are younger than
        ``min_age_seconds`` and those of other platforms (another ``root``).
        """


def load_runner(settings: AirflowSettings) -> Runner:
    """Return the runner that ``settings.runner`` names; raise ``PlatformError`` if it is not installed."""
    runner: type[Runner] = extensions.load("dmls.runners", settings.runner)
    return runner(settings)


def runner_file(worker: int) -> str:
    """Return the name of the file in the run's folder that records how a trainer ended."""
    return f"runner-{worker}.json" if worker else "runner.json"


def raise_failure(job: Job, store: Store, reason: str, plan: Mapping[str, Any], context: Context) -> None:
    """Raise the error of the trainer's ``error.json``, or one with ``reason`` if it wrote none.

    A user's error is an ``AirflowFailException``: a retry would not help. An additional worker that failed on
    its last try raises ``AirflowSkipException``: the leader goes on without it. Others are ``RunnerError``.
    """
    if plan["worker"]:
        task = context["task_instance"]
        message = f"the trainer {reason}: see this task's log; the search goes on without this worker"
        if task.try_number <= task.max_tries:
            raise RunnerError(message)
        raise AirflowSkipException(message)
    try:
        error = json.loads(store.get(job.run_file("error.json")))
    except ObjectMissingError as missing:
        raise RunnerError(f"the trainer {reason} and wrote no error.json: see this task's log") from missing
    if error["exit_code"] == 1:
        raise AirflowFailException(error["message"])
    raise RunnerError(f"the trainer {reason}: {error['message']}")


PROGRESS_SECONDS = 2.0
"""Seconds between two reads of ``progress.json``."""


class ProgressWatcher:
    """Copy the trainer's ``progress.json`` into ``_status`` from a thread, while the block runs."""

    def __init__(self, job: Job, store: Store, reporter: StatusReporter) -> None:
        self._job = job
        self._store = store
        self._reporter = reporter
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="dmls-progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join(timeout=5)

    def _watch(self) -> None:
        last = ""
        while not self._done.wait(PROGRESS_SECONDS):
            try:
                progress = json.loads(self._store.get(self._job.run_file("progress.json")))
            except (DmlsError, ValueError):
                # Not written yet, or the store is unavailable: the next read may succeed.
                continue
            message = describe(progress)
            if message != last:
                self._reporter.running(message)
                last = message


def describe(progress: dict[str, object]) -> str:
    """Return the trainer's progress in a few words: ``training 3/5, best so far 0.9583``."""
    state = progress.get("state")
    if state != "searching":
        return str(progress.get("message") or state)
    best = progress.get("best")
    text = f"training {progress.get('finished')}/{progress.get('total')}"
    return f"{text}, best so far {best:.4f}" if isinstance(best, float) else text
