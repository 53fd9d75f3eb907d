"""The command line and environment of a trainer, the same for every runner."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow.sdk import Context

from dmls_core.airflow.job import Job
from dmls_core.airflow.placement import trainer_engine
from dmls_core.airflow.settings import AirflowSettings
from dmls_core.airflow.study_database import study_environment
from dmls_core.hardware import parse_memory
from dmls_core.settings import QUEUE_VARIABLE, DataLimits, ProcessSettings
from dmls_core.store import Store, layout
from dmls_core.store.waiting_queue import dequeue

ROOT_LABEL = "dmls.root"
"""Label with the root of the platform that a trainer belongs to; several may share a Docker engine."""

PASSED_VARIABLES = re.compile(r"(PATH|LANG|LC_\w+|TZ|DMLS_PLATFORM_ID|SSL_CERT_\w+|CUDA_VISIBLE_DEVICES)")
"""A worker's variables that a trainer on the same machine may see."""


@dataclass(frozen=True, slots=True)
class Trainer:
    """One trainer for a runner to start.

    Attributes:
        arguments: of the command ``dmls``: ``["train", SPEC, DATA, ..., "--out", FOLDER]``.
        environment: credentials of the store, the study's URL, limits of data. It holds secrets: keep it out
            of logs, labels and command lines.
        labels: identify it later: root, DAG, run, task, try, run key and worker.
        memory: limit in bytes.
        engine: ``cpu`` or ``gpu``.
        worker: its number among the trainers of the run; 0 is the leader.
        local: whether its store is a folder of this machine, which containers and other machines cannot see.
    """

    arguments: list[str]
    environment: dict[str, str]
    labels: dict[str, str]
    memory: int
    engine: str
    worker: int
    local: bool = False


def make_trainer(
    job: Job, store: Store, settings: AirflowSettings, plan: Mapping[str, Any], context: Context
) -> Trainer:
    """Return the trainer of one worker; ``plan`` is its entry in the result of the task ``plan``."""
    task = context["task_instance"]
    environment = store.trainer_environment() | study_environment(job) | data_limits()
    return Trainer(
        arguments=trainer_arguments(job, store, plan),
        environment=environment | leave_queue(job, store, plan),
        labels={
            ROOT_LABEL: settings.root,
            **trainer_labels(job, context["run_id"], task.task_id, task.try_number, plan["worker"]),
        },
        memory=parse_memory(job.spec.resources.memory or settings.memory),
        engine=plan["engine"],
        worker=plan["worker"],
        local=store.local,
    )


def trainer_arguments(job: Job, store: Store, plan: Mapping[str, Any]) -> list[str]:
    """Return the arguments of ``dmls`` for one worker of a job's search."""
    arguments = ["train", f"{store.url}/{job.spec_key}"]
    arguments += [f"{store.url}/{data.key}" for data in job.data]
    arguments += ["--out", f"{store.url}/{layout.run_folder(job.team, job.name, job.run_key)}"]
    arguments += ["--team", job.team, "--name", job.name, "--run-key", job.run_key]
    arguments += ["--engine", trainer_engine(job.spec, plan["engine"])]
    arguments += ["--worker", str(plan["worker"])] if plan["worker"] else []
    if champion := plan.get("champion"):
        folder = layout.run_folder(job.team, job.name, champion["run_key"])
        arguments += ["--champion", f"{store.url}/{folder}".rstrip("/")]
        arguments += ["--champion-version", str(champion["version"])]
    for data in job.data:
        arguments += ["--etag", data.etag]
    if job.inputs and job.interval:
        arguments += ["--until", job.interval[1]]
        arguments += ["--since", job.inputs.since] if job.inputs.since else []
    return arguments


def leave_queue(job: Job, store: Store, plan: Mapping[str, Any]) -> dict[str, str]:
    """Take the run out of its engine's queue; return the variables by which other workers watch the queue.

    The leader also deletes an earlier try's ``error.json``: it would be reported if this try is killed.
    """
    if not plan["worker"]:
        store.delete(job.run_file(layout.ERROR))
        dequeue(store, plan["engine"], job.team, job.name, job.run_key)
        return {}
    return {QUEUE_VARIABLE: f"{store.url}/{layout.queue_folder(plan['engine'])}".rstrip("/")}


def data_limits() -> dict[str, str]:
    """Return the worker's variables that limit data, for its trainers."""
    return {name: text for name, text in os.environ.items() if name.startswith(DataLimits.prefix)}


def worker_environment() -> dict[str, str]:
    """Return the worker's variables that a trainer on the same machine may see; none is a secret."""
    return {name: text for name, text in os.environ.items() if PASSED_VARIABLES.fullmatch(name)}


def trainer_labels(job: Job, run_id: str, task_id: str, try_number: int, worker: int) -> dict[str, str]:
    """Return a trainer's labels, with an embedded platform's id for ``dmls down`` to find its containers."""
    platform = ProcessSettings.from_environment().platform_id
    return {
        **({"dmls.platform": platform} if platform else {}),
        "dmls.dag": layout.dag_id(job.team, job.name),
        "dmls.run": run_id,
        "dmls.task": task_id,
        "dmls.try": str(try_number),
        "dmls.run_key": job.run_key,
        "dmls.worker": str(worker),
    }
