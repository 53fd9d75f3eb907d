"""The pod of a trainer, built from a template."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kubernetes.client import ApiClient

from dmls_core.airflow.runners.kubernetes.manifest import build_pod
from dmls_core.airflow.runners.trainer import KEY_LABEL, ROOT_LABEL, Trainer
from dmls_core.airflow.settings import AirflowSettings
from tests.services.kubernetes_api import check_manifest, kubeconfig

TRAINER = Trainer(
    arguments=["train", "spec.toml", "data.csv"],
    environment={},
    labels={KEY_LABEL: "dmls.shop.churn.0.manual.1", ROOT_LABEL: "s3://bucket/dmls"},
    memory=1 << 30,
    engine="cpu",
    worker=0,
)


def pod_from(template: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Build a trainer's pod with the setting ``kubernetes_pod``, check its manifest, and return it."""
    extra = {"kube_config": json.dumps(kubeconfig("http://127.0.0.1:9"))}
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps({"conn_type": "kubernetes", "extra": extra}))
    settings = AirflowSettings(
        root="s3://bucket/dmls", runner="kubernetes", kubernetes_conn_id="cluster", kubernetes_pod=template
    )
    pod: dict[str, Any] = ApiClient().sanitize_for_serialization(build_pod(TRAINER, settings, {}))
    check_manifest(pod)
    return pod
