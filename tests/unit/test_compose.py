"""What each service of the compose stack may do, and which secrets it gets."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())["services"]

CAPABILITIES = {
    "postgres": {"CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"},
    "s3": {"DAC_OVERRIDE", "FOWNER"},
}
"""Those that start as root for their volumes."""

AIRFLOW = {
    "airflow-init",
    "airflow-api-server",
    "airflow-scheduler",
    "airflow-triggerer",
    "airflow-dag-processor",
    "airflow-clean",
}

SECRETS = {
    "AIRFLOW_ADMIN_PASSWORD": {*AIRFLOW, "dmls"},
    "AIRFLOW_DB_PASSWORD": {*AIRFLOW, "postgres"},
    "AIRFLOW_FERNET_KEY": AIRFLOW,
    "AIRFLOW_JWT_SECRET": AIRFLOW,
    "AIRFLOW_SECRET_KEY": AIRFLOW,
    "GRAFANA_PASSWORD": {"grafana"},
    "METRICS_TOKEN": {"airflow-api-server", "prometheus"},
    "MLFLOW_DB_PASSWORD": {"mlflow", "postgres"},
    "MLFLOW_PASSWORD": {*AIRFLOW, "mlflow", "dmls"},
    "MLFLOW_SECRET_KEY": {"mlflow"},
    "OPTUNA_DB_PASSWORD": {*AIRFLOW, "postgres"},
    "POSTGRES_PASSWORD": {"postgres"},
    "S3_ACCESS_KEY": {*AIRFLOW, "s3", "s3-bucket", "s3-guard", "mlflow", "dmls"},
    "S3_SECRET_KEY": {*AIRFLOW, "s3", "s3-bucket", "s3-guard", "mlflow", "dmls"},
    "SIGNING_KEY": {"airflow-scheduler"},
    "TRITON_KEY": {*AIRFLOW, "triton", "dmls"},
}
"""Which services get a secret. One that needs no more a secret loses it here and in the file."""

RUN = sorted(set(SERVICES) - {"trainer"})
"""The trainer's service is only built: the runner starts and hardens its containers."""


@pytest.mark.parametrize("name", RUN)
def test_a_service_has_no_capabilities_and_gains_no_privileges(name: str) -> None:
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert set(service.get("cap_add", [])) == CAPABILITIES.get(name, set())
    assert not {"privileged", "pid", "ipc", "network_mode", "devices"} & service.keys()
    assert service.get("user", "10001:10001") == "10001:10001"


def test_services_write_to_volumes_and_to_memory_alone() -> None:
    """Triton's and Grafana's images were never seen to run so."""
    writable = {name for name in RUN if not SERVICES[name].get("read_only")}
    assert writable == {"triton", "grafana"}
    for name in set(RUN) - writable:
        service = SERVICES[name]
        assert "/tmp" in [*service.get("tmpfs", []), *service.get("volumes", [])], name


def test_images_of_registries_are_pinned_by_digest(tmp_path: Path) -> None:
    """No public text has the digest of Triton's image: ``images/pin.sh`` prints it."""
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\necho "${5%%:*}@sha256:0"\n')
    docker.chmod(0o755)
    path = f"{tmp_path}:/usr/bin:/bin"
    done = subprocess.run(["sh", ROOT / "images/pin.sh"], env={"PATH": path}, capture_output=True, text=True)
    assert done.stdout == "TRITON_IMAGE=nvcr.io/nvidia/tritonserver@sha256:0\n"
    defaults = dict(re.findall(r"\$\{(\w+_IMAGE):-([^}]+)\}", (ROOT / "docker-compose.yaml").read_text()))
    images = {name: image for name, image in defaults.items() if not image.startswith("dmls-")}
    assert len(images) == 6
    pinned = {n for n, image in images.items() if re.fullmatch(r"[a-z/]+:[\w.-]+@sha256:[0-9a-f]{64}", image)}
    assert pinned == images.keys() - {"TRITON_IMAGE"}


@pytest.mark.parametrize("secret", sorted(SECRETS))
def test_a_secret_is_given_to_those_who_need_it(secret: str) -> None:
    holders = {
        name for name, service in SERVICES.items() if re.search(rf"\$\{{{secret}\b", json.dumps(service))
    }
    assert holders == SECRETS[secret]


def test_every_secret_has_a_rule() -> None:
    text = (ROOT / "docker-compose.yaml").read_text()
    named = re.findall(r"\$\{(\w*(?:PASSWORD|SECRET|KEY|TOKEN)\w*)", text)
    assert set(named) == set(SECRETS)


def test_those_who_start_and_watch_trainers_reach_the_docker_engine_and_no_others() -> None:
    found = {name for name in SERVICES if "docker.sock" in str(SERVICES[name])}
    assert found == {"airflow-scheduler", "airflow-triggerer"}
    assert found == {name for name in SERVICES if "DOCKER_GID" in str(SERVICES[name].get("group_add"))}
