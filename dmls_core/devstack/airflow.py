"""Airflow: its configuration as environment variables, and its four processes."""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from dmls_core.devstack.airflow_client import AirflowClient
from dmls_core.devstack.context import HOME_VARIABLE, REGION, Context
from dmls_core.devstack.docker_engine import TRAINER_IMAGE
from dmls_core.devstack.mlflow import mlflow_login
from dmls_core.devstack.postgres import (
    STUDY,
    database_url,
    note_schema_version,
    refuse_downgrade,
    schema_version,
)
from dmls_core.devstack.private_files import make_private_folder, write_private_json
from dmls_core.devstack.seaweedfs import TRAINER_ROLE
from dmls_core.devstack.signing import signing_environment
from dmls_core.devstack.supervisor import Service, http_answers, http_text, run_logged
from dmls_core.errors import PlatformError
from dmls_core.hardware import available_cpus, find_gpus
from dmls_core.settings import (
    CONNECTIONS,
    CORS_ORIGINS,
    ENVIRONMENT,
    METRICS_TOKEN,
    SHARED_BYTES,
    ProcessSettings,
    ServingLimits,
)

PORTS = ("airflow",)
ADMIN = "admin"
_BUNDLE = "dmls"
BUNDLE_CLASSPATH = "dmls_core.airflow.bundle.DmlsBundle"
CONNECTION = "aws_default"
STUDY_CONNECTION = "dmls_study"
_MIGRATE_SECONDS = 300

Runner = Literal["docker", "process"]


def airflow_services(context: Context, runner: Runner) -> list[Service]:
    """Return the API server, the scheduler, the triggerer and the DAG processor."""
    environment = airflow_environment(context, runner)
    health = f"{context.url('airflow')}/api/v2/monitor/health"

    def component(name: str, command: list[str], ready: Callable[[float], bool], url: str = "") -> Service:
        return Service(
            name=name,
            command=[sys.executable, "-P", "-m", "airflow", *command],
            folder=context.state / "airflow",
            environment=environment,
            ready=ready,
            url=url,
        )

    def beats(key: str) -> Callable[[float], bool]:
        return lambda started: _has_beaten(health, key, started)

    return [
        component(
            "airflow-api-server",
            ["api-server"],
            lambda _: http_answers(f"{context.url('airflow')}/api/v2/version"),
            context.url("airflow"),
        ),
        # One machine: the API server reads the logs as files.
        component("airflow-scheduler", ["scheduler", "--skip-serve-logs"], beats("scheduler")),
        component("airflow-triggerer", ["triggerer", "--skip-serve-logs"], beats("triggerer")),
        component("airflow-dag-processor", ["dag-processor"], beats("dag_processor")),
    ]


def airflow_environment(context: Context, runner: Runner) -> dict[str, str]:
    """Return Airflow's configuration."""
    home = make_private_folder(context.state / "airflow")
    passwords = home / "passwords.json"
    write_private_json(passwords, {ADMIN: context.secret("airflow_password")})
    sections: dict[str, dict[str, Any]] = {
        "core": {
            "executor": "LocalExecutor",
            # A task takes a CPU for some seconds before its first line runs: more at once only time out.
            "parallelism": max(4, 2 * available_cpus()),
            "load_examples": False,
            "dags_are_paused_at_creation": False,
            # Store a version that follows another within seconds at once, not at the next parse.
            "min_serialized_dag_update_interval": 0,
            "fernet_key": context.secret("airflow_fernet_key"),
            "simple_auth_manager_users": f"{ADMIN}:admin",
            "simple_auth_manager_passwords_file": passwords,
            "execution_api_server_url": f"{context.url('airflow')}/execution/",
            # The default asks name servers, which times out without a network.
            "hostname_callable": "socket.gethostname",
        },
        "database": {
            "sql_alchemy_conn": database_url(context, "airflow", "psycopg2"),
            "sql_alchemy_conn_async": database_url(context, "airflow", "asyncpg"),
        },
        "api": {
            "host": "127.0.0.1",
            "port": context.port("airflow"),
            "base_url": context.url("airflow"),
            "workers": 1,
            "worker_timeout": 30,
            "secret_key": context.secret("airflow_secret_key"),
        },
        "api_auth": {"jwt_secret": context.secret("airflow_jwt_secret")},
        "logging": {
            "base_log_folder": context.state / "logs" / "airflow",
            "dag_processor_child_process_log_directory": context.state / "logs" / "airflow" / "dag_processor",
            "colored_console_log": False,
        },
        # Airflow detects a killed scheduler or triggerer after 15 s and resumes its tasks.
        "scheduler": {
            "scheduler_idle_sleep_time": 0.5,
            "scheduler_heartbeat_sec": 3,
            "job_heartbeat_sec": 3,
            "scheduler_health_check_threshold": 15,
            "orphaned_tasks_check_interval": 10,
            "task_instance_heartbeat_timeout": 60,
            "task_queued_timeout": 120,
            "task_queued_timeout_check_interval": 15,
            "parsing_cleanup_interval": 15,
        },
        "triggerer": {"job_heartbeat_sec": 3, "triggerer_health_check_threshold": 15},
        "workers": {
            "min_heartbeat_interval": 2,
            # A task that starts while the API server is down waits for ten minutes: a try would be lost.
            "execution_api_retries": 120,
            "execution_api_retry_wait_max": 10,
        },
        "dag_processor": {
            "dag_bundle_config_list": json.dumps(bundles(context, runner)),
            "dag_bundle_storage_path": home / "bundles",
            "bundle_refresh_check_interval": 1,
            # Its files are parsed when they change; the rest costs 20 ms of CPU time a job.
            "min_file_process_interval": 3600,
            "parsing_processes": 2,
            "print_stats_interval": 600,
        },
    }
    return {
        "AIRFLOW_HOME": str(home),
        HOME_VARIABLE: str(context.state),
        ENVIRONMENT["triton_key"]: context.secret("triton_key"),
        METRICS_TOKEN: context.secret("metrics_token"),
        **signing_environment(context),
        **mlflow_login(context),
        CORS_ORIGINS: ProcessSettings.from_environment().cors_origins,
        SHARED_BYTES: str(ServingLimits.from_environment().shared_bytes),
        f"AIRFLOW_CONN_{CONNECTION.upper()}": json.dumps(
            {
                "conn_type": "aws",
                "login": context.secret("s3_access_key"),
                "password": context.secret("s3_secret_key"),
                "extra": {"endpoint_url": context.url("s3"), "region_name": REGION},
            }
        ),
        f"AIRFLOW_CONN_{STUDY_CONNECTION.upper()}": json.dumps(
            {
                "conn_type": "postgres",
                "login": STUDY,
                "password": context.secret(f"{STUDY}_db_password"),
                "host": "127.0.0.1",
                "port": context.port("postgres"),
                "schema": STUDY,
            }
        ),
        **{
            f"AIRFLOW__{section.upper()}__{option.upper()}": str(value)
            for section, options in sections.items()
            for option, value in options.items()
        },
    }


def bundles(context: Context, runner: Runner) -> list[dict[str, Any]]:
    """Return the value of ``[dag_processor] dag_bundle_config_list``."""
    return [
        {
            "name": _BUNDLE,
            "classpath": BUNDLE_CLASSPATH,
            "kwargs": {
                "root": context.root,
                "aws_conn_id": CONNECTION,
                "runner": runner,
                "trainer_role": TRAINER_ROLE,
                "mlflow_uri": context.url("mlflow"),
                "triton_http": context.address("triton_http"),
                "triton_grpc": context.address("triton_grpc"),
                "triton_repository": str(context.model_repository),
                "inference_log": str(context.inference_log),
                "image": TRAINER_IMAGE,
                "gpus": _gpus_of(runner),
                "refresh_interval": 1,
                "poll_seconds": 2,  # its S3 server charges nothing for a request
                "connections": _connections(),
                **(_docker_kwargs() if runner == "docker" else {}),
            },
        }
    ]


def _connections() -> dict[str, Any]:
    """Return the connections to databases that the user allows, each with its teams."""
    text = ProcessSettings.from_environment().connections or "{}"
    try:
        connections: dict[str, list[str]] = TypeAdapter(dict[str, list[str]]).validate_json(text)
    except ValidationError:
        raise PlatformError(
            f'{CONNECTIONS} must be JSON such as {{"warehouse": ["shop"]}}, not {text[:100]!r}'
        ) from None
    return connections


def _docker_kwargs() -> dict[str, str]:
    """Return the engine's address, and the network by which containers reach S3 on loopback."""
    return {"docker_network": "host", "docker_url": os.environ.get("DOCKER_HOST", "")}


def _gpus_of(runner: Runner) -> int:
    """Return the number of GPUs that trainers can use: 0 if their image or Python has only the cpu engine."""
    from dmls_core.models import engine_class

    if runner == "docker" or engine_class("gpu", "random-forest-classifier").missing_packages():
        return 0
    return sum(gpu.usable for gpu in find_gpus())


def pools() -> dict[str, int]:
    """Return the slots of each pool on this machine."""
    return {"dmls_cpu": available_cpus(), "dmls_gpu": len(find_gpus())}


def make_pools(context: Context) -> None:
    """Create missing pools; existing ones keep their size, and count the trainers of deferred tasks."""
    rest = AirflowClient(context.url("airflow"), ADMIN, context.secret("airflow_password"))
    entities = [
        {"name": name, "slots": slots, "include_deferred": True, "description": "DMLS trainers"}
        for name, slots in pools().items()
    ]
    rest.call(
        "PATCH",
        "/api/v2/pools",
        {"actions": [{"action": "create", "entities": entities, "action_on_existence": "skip"}]},
    )
    for entity in entities:
        path = f"/api/v2/pools/{entity['name']}?update_mask=include_deferred"
        rest.call("PATCH", path, {"pool": entity["name"], "slots": entity["slots"], "include_deferred": True})


def migrate(context: Context, runner: Runner, environment: dict[str, str], log: Path) -> None:
    """Create or upgrade the schema, unless it is current; raise ``PlatformError`` on failure."""
    version = importlib.metadata.version("apache-airflow-core")
    written = schema_version(context, "airflow")
    if written == version:
        return
    refuse_downgrade("Airflow", written, version)
    command = [sys.executable, "-P", "-m", "airflow", "db", "migrate"]
    variables = environment | airflow_environment(context, runner)
    run_logged(command, variables, log, _MIGRATE_SECONDS, name="airflow db migrate")
    note_schema_version(context, "airflow", version)


def _has_beaten(health: str, key: str, started: float) -> bool:
    """Return whether a component's heartbeat is from the process that started at ``started``."""
    text = http_text(health)
    if text is None:
        return False
    entry = json.loads(text).get(key) or {}
    beat = entry.get(f"latest_{key}_heartbeat")
    return (
        entry.get("status") == "healthy"
        and beat is not None
        and datetime.fromisoformat(beat).timestamp() >= started - 1.0
    )
