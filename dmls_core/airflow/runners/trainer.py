"""Where and how trainers run: engine, pool, command line and environment, the same for every runner."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from airflow.sdk import Connection, Context
from airflow.sdk.exceptions import AirflowNotFoundException

from dmls_core.airflow.runners.gpu_placement import estimate_gpu_memory
from dmls_core.airflow.runners.runner import load_runner
from dmls_core.airflow.runs.job import Job
from dmls_core.airflow.settings import AirflowSettings
from dmls_core.errors import ObjectMissingError, RunnerError, SpecError, ValidationIssue
from dmls_core.hardware import parse_memory
from dmls_core.models import CATALOGUE, for_engine
from dmls_core.settings import (
    DASK_SCHEDULER,
    NODE_TRAINERS,
    SIGNING_KEY,
    STUDY_VARIABLE,
    CacheSettings,
    DataLimits,
    ProcessSettings,
)
from dmls_core.spec import ModelSearch, Spec
from dmls_core.store import Access, Store, layout

CPU_POOL = "dmls_cpu"
GPU_POOL = "dmls_gpu"


def choose_engine(spec: Spec, gpus: int) -> str:
    """Return the engine for ``spec`` on a platform that offers ``gpus`` GPUs: ``gpu`` or ``cpu``.

    ``auto`` means ``gpu`` if there is a GPU and its engine supports a model with all its hyperparameters.
    """
    if spec.resources.engine != "auto":
        return spec.resources.engine
    if spec.resources.nodes > 1:
        return "cpu"
    weighted = spec.columns.weight is not None
    fits = gpus and any(_runs_on_gpu(search, weighted=weighted) for search in spec.models)
    return "gpu" if fits else "cpu"


def trainer_engine(spec: Spec, engine: str) -> str:
    """Return the trainer's ``--engine``; with several models and ``auto`` on a GPU it chooses for each."""
    return "auto" if engine == "gpu" and len(spec.models) > 1 and spec.resources.engine == "auto" else engine


def choose_pool(spec: dict[str, Any], gpus: int) -> str:
    """Return the Airflow pool for the search of ``spec`` (JSON)."""
    engine = spec["resources"]["engine"]
    if engine == "auto" and gpus > 0:
        engine = choose_engine(Spec.from_json(spec), gpus)
    return GPU_POOL if engine == "gpu" else CPU_POOL


def _runs_on_gpu(search: ModelSearch, *, weighted: bool) -> bool:
    definition = CATALOGUE[search.name]
    if "gpu" not in definition.engines:
        return False
    try:
        for_engine(definition, search.hyperparameters, "gpu", weighted=weighted)
    except SpecError:
        return False
    return True


_STUDY_CONNECTION = "dmls_study"
"""Id of the Airflow connection, of type Postgres."""

_LOCALHOST = ("localhost", "127.0.0.1", "::1")


def study_environment(job: Job) -> dict[str, str]:
    """Return the trainers' variables for a shared study; empty if one trainer searches alone.

    Raise ``SpecError`` if the spec has several workers and the platform no connection to a study.
    """
    if job.spec.search.max_workers == 1:
        return {}
    try:
        connection = Connection.get(_STUDY_CONNECTION)
    except AirflowNotFoundException as error:
        if job.spec.search.workers == "auto":
            return {}
        raise SpecError(
            ValidationIssue(
                "this platform has no database for a search with several workers",
                key="search.workers",
                found=str(job.spec.search.workers),
                expected="1",
                hint=f"or ask the platform team to add the Airflow connection {_STUDY_CONNECTION}, a "
                "PostgreSQL database",
            )
        ) from error
    return {STUDY_VARIABLE: study_url(connection)}


def nodes_environment(job: Job, settings: AirflowSettings) -> dict[str, str]:
    """Return a trainer's variables for its nodes; raise ``SpecError`` if it can have none.

    ``DMLS_NODE_TRAINERS`` is among them, still without the trainer's key, if the runner starts trainers as
    nodes.
    """
    if job.spec.resources.nodes == 1:
        return {}
    if address := ProcessSettings.from_environment().dask_scheduler:
        dask = {name: text for name, text in os.environ.items() if name.startswith("DASK_")}
        return {DASK_SCHEDULER: address, **dask}
    runner = load_runner(settings)
    if runner.starts_nodes:
        return {NODE_TRAINERS: ""} if runner.starts_nodes == "trainers" else {}
    raise SpecError(
        ValidationIssue(
            f"the runner {settings.runner!r} starts no nodes",
            key="resources.nodes",
            found=str(job.spec.resources.nodes),
            expected="1",
            hint=f"or ask the platform team to set {DASK_SCHEDULER}, the address of a Dask cluster, for "
            "Airflow's workers",
        )
    )


def check_reachable(environment: dict[str, str], network: str) -> None:
    """Raise ``RunnerError`` if a container on ``network`` cannot reach the study, as far as its URL shows."""
    if STUDY_VARIABLE not in environment:
        return
    address = urlsplit(environment[STUDY_VARIABLE])
    if not address.hostname:
        folder = parse_qs(address.query).get("host", ["its default folder"])[0]
        raise RunnerError(
            f"the connection {_STUDY_CONNECTION} uses a unix socket ({folder}), which containers cannot see: "
            "give it a host and a port"
        )
    if network != "host" and address.hostname in _LOCALHOST:
        raise RunnerError(
            f"the connection {_STUDY_CONNECTION} names {address.hostname}, which on the network {network!r} "
            "is the container itself: give it the host by which containers reach the database, or set "
            "docker_network to a network on which they do"
        )


def study_url(connection: Connection) -> str:
    """Return a connection as an SQLAlchemy URL for psycopg; its extra becomes query parameters."""
    options = {name: str(value) for name, value in connection.extra_dejson.items()}
    host = connection.host or ""
    if host.startswith("/"):
        # The folder of a unix socket.
        options, host = {"host": host} | options, ""
    user = quote(connection.login or "", safe="")
    password = quote(connection.password or "", safe="")
    port = f":{connection.port}" if connection.port and host else ""
    if connection.port and not host:
        options["port"] = str(connection.port)
    query = f"?{urlencode(options)}" if options else ""
    return f"postgresql+psycopg://{user}:{password}@{host}{port}/{quote(connection.schema or '')}{query}"


ROOT_LABEL = "dmls.root"
"""Label with the platform that a trainer belongs to; several may share a machine or a Docker engine."""

LEADER_LABEL = "dmls.leader"
"""Label of a trainer that is a node of a run: the key of the trainer that leads it."""

KEY_LABEL = "dmls.trainer"
"""Label with the trainer's key: its name to the runner, unique among all platforms."""

_PASSED_VARIABLES = re.compile(r"(PATH|LANG|LC_\w+|TZ|DMLS_PLATFORM_ID|SSL_CERT_\w+|CUDA_VISIBLE_DEVICES)")
"""A worker's variables that a trainer on the same machine may see."""


@dataclass(frozen=True, slots=True)
class Trainer:
    """One trainer for a runner to start.

    Attributes:
        arguments: of the command ``dmls``: ``["train", SPEC, DATA, ..., "--out", FOLDER]``.
        environment: credentials of the store, the study's URL, the Dask cluster's address and certificates,
            the key that signs models, limits of data. It holds secrets: keep it out of logs, labels and
            command lines.
        labels: identify it later: key, root, DAG, run, task, try, run key and worker.
        memory: limit in bytes.
        engine: ``cpu`` or ``gpu``.
        cache: name of its team's cache of matrices; empty without one.
        gpu_memory: bytes of GPU memory that it needs at most, estimated; 0 on the ``cpu`` engine.
        worker: its number among the trainers of the run; 0 is the leader.
        nodes: number of trainers to start beside it, as ``node_trainers`` describes them.
        local: whether its store is a folder of this machine, which containers and other machines cannot see.
    """

    arguments: list[str]
    environment: dict[str, str]
    labels: dict[str, str]
    memory: int
    engine: str
    worker: int
    local: bool = False
    gpu_memory: int = 0
    cache: str = ""
    nodes: int = 0

    @property
    def key(self) -> str:
        """The trainer's key, one for each try of a task: ``<DAG>.<trainer>.<run>.<try>``."""
        return self.labels[KEY_LABEL]


def _note_restart(store: Store, key: str) -> None:
    """Replace the progress of an earlier try, which would pass for that of the new one."""
    with suppress(ObjectMissingError, ValueError):  # there was none, or it is damaged
        progress = json.loads(store.get(key))
        starting = {"state": "loading", "remaining_seconds": None, "message": "starting the trainer again"}
        store.put(key, json.dumps(progress | starting).encode())


def make_trainer(
    job: Job, store: Store, settings: AirflowSettings, plan: Mapping[str, Any], labels: dict[str, str]
) -> Trainer:
    """Return the trainer of one worker; ``plan`` is its entry in the result of the task ``plan``.

    The leader's earlier ``error.json`` is deleted: it would be reported if this try is killed. So is the
    request to leave that ended an earlier trainer of a helper. Its earlier ``progress.json`` is marked.
    """
    environment = _store_environment(job, store, settings.trainer_role)
    environment |= study_environment(job) | _data_limits() | _signing_key()
    environment |= nodes_environment(job, settings)
    own_nodes = NODE_TRAINERS in environment
    if own_nodes:
        environment[NODE_TRAINERS] = labels[KEY_LABEL]
    if settings.cache:
        environment[CacheSettings.variable("bytes")] = str(parse_memory(settings.cache))
    store.delete(job.run_file(layout.leave(plan["worker"]) if plan["worker"] else layout.ERROR))
    if not plan["worker"]:
        _note_restart(store, job.run_file(layout.PROGRESS))
    return Trainer(
        arguments=trainer_arguments(job, store, plan),
        environment=environment,
        labels=labels,
        memory=parse_memory(job.spec.resources.memory or settings.memory),
        engine=plan["engine"],
        worker=plan["worker"],
        local=store.local,
        gpu_memory=estimate_gpu_memory(job.data) if plan["engine"] == "gpu" else 0,
        # Two platforms on one machine may have teams of the same name.
        cache=f"dmls-cache-{_digest(settings.platform, job.team)}" if settings.cache else "",
        nodes=job.spec.resources.nodes if own_nodes else 0,
    )


def node_trainers(trainer: Trainer) -> list[Trainer]:
    """Return the nodes of a trainer with several: trainers that join it and end with it.

    They have its image, memory and store, but neither the key that signs models nor the study.
    """
    folder = trainer.arguments[trainer.arguments.index("--out") + 1] if trainer.nodes else ""
    secret = (SIGNING_KEY, STUDY_VARIABLE)
    environment = {name: text for name, text in trainer.environment.items() if name not in secret}
    return [
        replace(
            trainer,
            arguments=["node", folder],
            environment=environment,
            labels=trainer.labels | {KEY_LABEL: f"{trainer.key}-node{number}", LEADER_LABEL: trainer.key},
            nodes=0,
            cache="",
        )
        for number in range(1, trainer.nodes + 1)
    ]


def _store_environment(job: Job, store: Store, role: str) -> dict[str, str]:
    """Return a trainer's variables for the store; with ``role``, credentials for its run only."""
    if not role or store.local:
        return store.trainer_environment()
    read = (
        job.spec_key,
        layout.incoming_folder(job.team, job.name),
        layout.source_folder(job.team, job.name),
        layout.runs_folder(job.team, job.name),  # the champion's run
    )
    access = Access(read=read, write=(layout.run_folder(job.team, job.name, job.run_key),))
    return store.limited_environment(role, access, name=f"dmls-{job.run_key}")


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


def _data_limits() -> dict[str, str]:
    """Return the worker's variables that limit data, for its trainers."""
    return {name: text for name, text in os.environ.items() if name.startswith(DataLimits.prefix)}


def _signing_key() -> dict[str, str]:
    """Return the worker's variable with the key that signs models, if it is set."""
    key = ProcessSettings.from_environment().signing_key
    return {SIGNING_KEY: key} if key else {}


def worker_environment() -> dict[str, str]:
    """Return the worker's variables that a trainer on the same machine may see; none is a secret."""
    return {name: text for name, text in os.environ.items() if _PASSED_VARIABLES.fullmatch(name)}


def trainer_labels(job: Job, platform: str, plan: Mapping[str, Any], context: Context) -> dict[str, str]:
    """Return a trainer's labels, with an embedded platform's id for ``dmls down`` to find its containers."""
    embedded = ProcessSettings.from_environment().platform_id
    task, run_id = context["task_instance"], context["run_id"]
    dag_id, worker = layout.dag_id(job.team, job.name), str(plan["worker"])
    # All tries of a trainer share the first two parts; two runs of a job may share a run key.
    key = f"{dag_id}.{_digest(platform, job.run_key, worker)}.{_digest(run_id)}.{task.try_number}"
    return {
        **({"dmls.platform": embedded} if embedded else {}),
        KEY_LABEL: key,
        ROOT_LABEL: platform,
        "dmls.dag": dag_id,
        "dmls.run": run_id,
        "dmls.task": task.task_id,
        "dmls.try": str(task.try_number),
        "dmls.run_key": job.run_key,
        "dmls.worker": worker,
    }


def earlier_tries(key: str) -> str:
    """Return what the keys of all tries of a trainer begin with."""
    return key.rsplit(".", 2)[0] + "."


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
