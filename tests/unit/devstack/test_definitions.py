"""Every service binds to loopback, and no secret is readable by others."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from dmls_core.devstack import airflow, mlflow, postgres, seaweedfs, triton
from dmls_core.devstack.context import Context, base_environment
from dmls_core.devstack.platform import platform_settings, write_state
from dmls_core.devstack.processes import clear_stale
from dmls_core.devstack.supervisor import Service
from dmls_core.errors import PlatformError
from dmls_core.hardware import Gpu
from dmls_core.models.engines.cuml import CumlForestEngine
from dmls_core.settings import load_settings


def all_services(context: Context) -> list[Service]:
    server = triton.TritonServer(Path("/opt/triton"), Path("/opt/backends"), genuine=False, environment={})
    return [
        seaweedfs.seaweedfs_service(context),
        postgres.postgres_service(context),
        mlflow.mlflow_service(context),
        triton.triton_service(context, server),
        *airflow.airflow_services(context, "process"),
    ]


def test_no_secret_is_an_argument(context: Context):
    for service in all_services(context):
        line = " ".join(service.command)
        shown = {name for name, secret in context.identity.credentials.items() if secret in line}
        assert not shown, service.name


def test_nothing_listens_beyond_loopback(context: Context):
    for service in all_services(context):
        words = " ".join([*service.command, *service.environment.values()])
        assert "0.0.0.0" not in words, service.name
    lines = {service.name: " ".join(service.command) for service in all_services(context)}
    assert "-ip=127.0.0.1 -ip.bind=127.0.0.1 -disableHttp=true" in lines["s3"]
    assert "listen_addresses=127.0.0.1" in lines["postgres"]
    assert "--host 127.0.0.1" in lines["mlflow"]
    for kind in ("http", "grpc", "metrics"):
        assert f"--{kind}-address=127.0.0.1" in lines["triton"]
    assert airflow.airflow_environment(context, "process")["AIRFLOW__API__HOST"] == "127.0.0.1"


def test_every_port_is_used_by_its_service(context: Context):
    words = " ".join(
        word for s in all_services(context) for word in (*s.command, *s.environment.values(), s.url)
    )
    for name, port in context.identity.ports.items():
        assert str(port) in words, name


def test_what_is_written_is_private(context: Context):
    all_services(context)
    write_state(context, ())
    files = [p for p in context.state.rglob("*") if p.is_file()]
    assert len(files) >= 3
    assert {stat.S_IMODE(p.stat().st_mode) for p in files} == {0o600}


@pytest.mark.parametrize(
    ("runner", "missing", "offered"),
    [("docker", [], 0), ("process", ["cuml"], 0), ("process", [], 1)],
)
def test_a_gpu_is_offered_where_trainers_can_use_it(
    context: Context, monkeypatch: pytest.MonkeyPatch, runner, missing, offered
):
    gpus = [Gpu(0, "NVIDIA H200", 140 << 30, (9, 0)), Gpu(1, "Tesla K80", 12 << 30, (3, 7))]
    monkeypatch.setattr(airflow, "find_gpus", lambda: gpus)
    monkeypatch.setattr(CumlForestEngine, "missing_packages", lambda: missing)

    (entry,) = airflow.bundles(context, runner)

    assert entry["kwargs"]["gpus"] == offered


def test_connections_to_databases_are_the_users_choice(context: Context, monkeypatch: pytest.MonkeyPatch):
    (entry,) = airflow.bundles(context, "process")
    assert entry["kwargs"]["connections"] == {}
    monkeypatch.setenv("DMLS_CONNECTIONS", '{"warehouse": ["shop"]}')
    (entry,) = airflow.bundles(context, "process")
    assert entry["kwargs"]["connections"] == {"warehouse": ["shop"]}
    monkeypatch.setenv("DMLS_CONNECTIONS", '{"warehouse": "shop"}')
    with pytest.raises(PlatformError, match="DMLS_CONNECTIONS must be JSON such as"):
        airflow.bundles(context, "process")


def test_the_bundle_entry(context: Context):
    environment = airflow.airflow_environment(context, "docker")
    (entry,) = json.loads(environment["AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST"])
    assert entry["name"] == "dmls"
    assert entry["classpath"] == "dmls_core.airflow.bundle.DmlsBundle"
    kwargs = entry["kwargs"]
    assert kwargs["root"] == "s3://dmls"
    assert kwargs["runner"] == "docker"
    assert kwargs["mlflow_uri"] == context.url("mlflow")
    assert kwargs["triton_repository"] == str(context.model_repository)
    connection = json.loads(environment[f"AIRFLOW_CONN_{kwargs['aws_conn_id'].upper()}"])
    assert connection["extra"]["endpoint_url"] == context.url("s3")
    assert connection["password"] == context.secret("s3_secret_key")


def test_the_state_file_is_what_other_commands_read(context: Context, monkeypatch: pytest.MonkeyPatch):
    for name in (*context.s3_environment(), "NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "x")  # so that what load_settings sets is undone after the test
        monkeypatch.delenv(name)
    monkeypatch.setenv("DMLS_HOME", str(context.state))
    write_state(context, ())
    assert load_settings() == platform_settings(context)


def test_the_model_repository_is_the_projects_where_there_is_one(context: Context):
    assert context.model_repository == context.state / "triton_models"
    beside = context.state.parent / "triton_models"
    beside.mkdir()
    assert context.model_repository == beside


def test_a_service_inherits_nothing_of_another_platform(context: Context, monkeypatch: pytest.MonkeyPatch):
    foreign = {
        "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
        "AWS_PROFILE": "production",
        "MLFLOW_TRACKING_URI": "http://elsewhere",
        "PGHOST": "elsewhere",
        "DMLS_ROOT": "s3://elsewhere",
    }
    for name, value in (
        foreign | {"DOCKER_HOST": "unix:///x", "NO_PROXY": "intranet", "no_proxy": ""}
    ).items():
        monkeypatch.setenv(name, value)
    environment = base_environment(context)
    assert not foreign.keys() & environment.keys()
    assert environment["DOCKER_HOST"] == "unix:///x"
    assert environment["NO_PROXY"] == environment["no_proxy"] == "127.0.0.1,localhost,intranet"
    assert environment["DMLS_PLATFORM_ID"] == context.identity.id


def test_what_a_killed_postgresql_left_goes_whatever_its_folder_is_called(context: Context, tmp_path: Path):
    odd = Context(tmp_path / "work [new]*" / ".dmls", context.identity)
    left = odd.state / "postgres" / "data" / "postmaster.pid"
    left.parent.mkdir(parents=True)
    left.touch()
    clear_stale({"stale": postgres.postgres_service(odd).stale})
    assert not left.exists()


def test_databases_that_later_versions_wrote_are_left_alone(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for module in (airflow, mlflow):
        monkeypatch.setattr(module, "schema_version", lambda *_: "99.0")
        monkeypatch.setattr(module, "run_logged", lambda *_, **__: pytest.fail("it was migrated"))
    with pytest.raises(PlatformError, match=r"Airflow 99\.0 wrote its database"):
        airflow.migrate(context, "process", {}, tmp_path / "log")
    with pytest.raises(PlatformError, match=r"MLflow 99\.0 wrote its database"):
        mlflow.upgrade(context, {}, tmp_path / "log")
