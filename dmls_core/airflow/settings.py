"""DMLS's settings inside Airflow: the keyword arguments of the one bundle entry."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Literal

from airflow.sdk.configuration import conf

from dmls_core.errors import PlatformError
from dmls_core.settings import ENVIRONMENT

BUNDLE_CLASSPATH = "dmls_core.airflow.bundle.DmlsBundle"
"""Class path of the bundle in ``[dag_processor] dag_bundle_config_list``."""

Runner = Literal["docker", "process"]


@dataclass(frozen=True, slots=True)
class AirflowSettings:
    """What the platform team writes into the bundle entry's ``kwargs``.

    Attributes:
        root: ``s3://bucket/prefix`` or a shared folder.
        aws_conn_id: Airflow connection for ``root`` when it is in S3.
        runner: what starts the trainer.
        mlflow_uri: MLflow server, as the workers reach it; empty: nothing is recorded.
        mlflow_public_uri: MLflow server as a browser reaches it; empty: the same.
        triton_http: ``host:port`` of Triton's HTTP endpoint, as the workers reach it; several replicas are
            separated by commas.
        triton_grpc: ``host:port`` of Triton's gRPC endpoint, or endpoints in the same order.
        triton_repository: Triton's model repository as the workers see it: a folder or ``s3://``.
        inference_log: folder that Triton writes sampled requests to, as the workers see it; empty: they are
            fetched by something else.
        keep_versions: versions of a model that stay in the repository.
        image: trainer image of the docker runner.
        docker_url: Docker engine; empty: ``DOCKER_HOST`` or the local socket.
        docker_network: network mode of trainer containers.
        trainer_python: interpreter of the process runner; empty: the worker's own.
        gpus: GPUs that the runner offers, on each engine; with none, ``engine = "auto"`` means ``cpu``.
        memory: limit for one trainer, such as ``4g``; a spec may ask for less or more.
        cpus: CPU limit for one trainer; 0: no limit.
        poll_seconds: how often the incoming prefix is listed.
        shards: number of generated DAG files.
        monitor_cron: when drift is looked for, in UTC; empty: only where the DAG is started by hand.
    """

    root: str
    aws_conn_id: str = "aws_default"
    runner: Runner = "docker"
    mlflow_uri: str = ""
    mlflow_public_uri: str = ""
    triton_http: str = ""
    triton_grpc: str = ""
    triton_repository: str = ""
    inference_log: str = ""
    keep_versions: int = 3
    image: str = "dmls-trainer:cpu"
    docker_url: str = ""
    docker_network: str = "bridge"
    trainer_python: str = ""
    gpus: int = 0
    memory: str = "4g"
    cpus: float = 0.0
    poll_seconds: float = 3.0
    shards: int = 32
    monitor_cron: str = "@hourly"

    def __post_init__(self) -> None:
        if not self.root:
            raise PlatformError(
                f"bundle entry {BUNDLE_CLASSPATH}: kwargs.root is empty; give s3://bucket/prefix"
            )
        if self.runner not in ("docker", "process"):
            raise PlatformError(
                f"bundle entry {BUNDLE_CLASSPATH}: kwargs.runner is {self.runner!r}; "
                "give 'docker' or 'process'"
            )

    @staticmethod
    def load_key() -> str:
        """Return what Triton asks for before it loads a model: a secret, so no part of the bundle's entry."""
        return os.environ.get(ENVIRONMENT["triton_key"], "")


def split_kwargs(kwargs: dict[str, Any]) -> tuple[AirflowSettings, dict[str, Any]]:
    """Part a bundle entry's ``kwargs`` into DMLS's settings and what Airflow's base class takes."""
    names = {f.name for f in fields(AirflowSettings)}
    own = {k: v for k, v in kwargs.items() if k in names}
    return AirflowSettings(**{"root": "", **own}), {k: v for k, v in kwargs.items() if k not in names}


@cache
def airflow_settings() -> AirflowSettings:
    """Read the settings from Airflow's configuration; the same answer in every Airflow process.

    Raises:
        PlatformError: there is no bundle entry for DMLS.
    """
    entries = json.loads(conf.get("dag_processor", "dag_bundle_config_list"))
    for entry in entries:
        if entry.get("classpath") == BUNDLE_CLASSPATH:
            return split_kwargs(entry.get("kwargs", {}))[0]
    raise PlatformError(
        f"[dag_processor] dag_bundle_config_list has no entry with classpath {BUNDLE_CLASSPATH}: "
        "add one as docs/install.md shows"
    )
