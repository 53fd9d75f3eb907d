"""What the trainer is asked to do: one command line, the same for every runner."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from dmls_core.airflow.job import Job
from dmls_core.airflow.placement import trainer_engine
from dmls_core.settings import QUEUE_VARIABLE, DataLimits, ProcessSettings
from dmls_core.store import Store, layout
from dmls_core.store.waiting_queue import dequeue

ROOT_LABEL = "dmls.root"
"""Label of a container with the root of the DMLS that it belongs to: others may share the engine."""

RUN_MARK = ProcessSettings.variable("trainer_of")
"""Variable of a trainer's process that says which run of which DMLS it belongs to."""


def run_mark(root: str, job: Job, run_id: str) -> str:
    """Return the value of ``RUN_MARK``."""
    return json.dumps({"root": root, "dag": layout.dag_id(job.team, job.name), "run": run_id})


def trainer_arguments(job: Job, store: Store, plan: Mapping[str, Any]) -> list[str]:
    """Return the arguments of ``dmls`` that train ``job``: ``["train", SPEC, DATA, ..., "--out", DIR]``.

    Args:
        job: what to train.
        store: where spec and data are.
        plan: one worker's share of the search, as the task ``plan`` returned it.
    """
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


def take_turn(job: Job, store: Store, plan: Mapping[str, Any]) -> dict[str, str]:
    """Note that a run's search has begun; return the variables that tell an extra trainer who waits.

    The error that an earlier try left goes: a trainer that is killed writes none, and that one would be told.
    """
    if not plan["worker"]:
        store.delete(job.run_file(layout.ERROR))
        dequeue(store, plan["engine"], job.team, job.name, job.run_key)
        return {}
    return {QUEUE_VARIABLE: f"{store.url}/{layout.queue_folder(plan['engine'])}".rstrip("/")}


def data_limits() -> dict[str, str]:
    """Return the worker's variables with limits of data, by which its trainers read data as well."""
    return {name: text for name, text in os.environ.items() if name.startswith(DataLimits.prefix)}


def trainer_labels(job: Job, run_id: str, task_id: str, try_number: int, worker: int) -> dict[str, str]:
    """Return the labels by which a container is found again: dag, run, task, try, run key and worker.

    The embedded platform's mark is among them, so that ``dmls down`` leaves no container behind.
    """
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
