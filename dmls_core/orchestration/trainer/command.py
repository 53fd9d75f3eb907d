"""What the trainer is asked to do: one command line, the same for every runner."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from dmls_core.orchestration.engine import trainer_engine
from dmls_core.orchestration.job import Job
from dmls_core.store import Store, layout


def trainer_arguments(job: Job, store: Store, plan: Mapping[str, Any]) -> list[str]:
    """Return the arguments of ``dmls`` that train ``job``: ``["train", SPEC, DATA, ..., "--out", DIR]``.

    Args:
        job: what to train.
        store: where spec and data are.
        plan: one worker's share of the search, as the task ``plan`` returned it.
    """
    record = job.record
    arguments = ["train", f"{store.url}/{layout.spec(record.spec_sha256)}"]
    arguments += [f"{store.url}/{data.key}" for data in job.data]
    arguments += ["--out", f"{store.url}/{layout.run_folder(job.team, job.name, job.run_key)}"]
    arguments += ["--team", job.team, "--name", job.name, "--run-key", job.run_key]
    arguments += ["--engine", trainer_engine(job.spec, plan["engine"])]
    arguments += ["--worker", str(plan["worker"])] if plan["worker"] else []
    for data in job.data:
        arguments += ["--etag", data.etag]
    if job.inputs:
        arguments += ["--until", job.inputs.interval[1]]
        arguments += ["--since", job.inputs.since] if job.inputs.since else []
    return arguments


def trainer_labels(job: Job, run_id: str, task_id: str, try_number: int, worker: int) -> dict[str, str]:
    """Return the labels by which a container is found again: dag, run, task, try, run key and worker.

    The embedded platform's mark is among them, so that ``dmls down`` leaves no container behind.
    """
    platform = os.environ.get("DMLS_PLATFORM_ID")
    return {
        **({"dmls.platform": platform} if platform else {}),
        "dmls.dag": layout.dag_id(job.team, job.name),
        "dmls.run": run_id,
        "dmls.task": task_id,
        "dmls.try": str(try_number),
        "dmls.run_key": job.run_key,
        "dmls.worker": str(worker),
    }
