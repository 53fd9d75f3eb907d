"""Export a served version for use elsewhere: as a Triton repository, with manifests, or as ONNX."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from dmls_core.errors import NotFoundError, UserError, ValidationIssue
from dmls_core.serving.formats.base import ServingFormat
from dmls_core.serving.repository.repository import MODEL_FILES, Repository
from dmls_core.serving.triton.model_config import BOOKKEEPING, table_name

Target = Literal["triton", "kserve", "onnx"]

_TRITON_RELEASE = "25.12-py3"
TRITON_IMAGE = f"nvcr.io/nvidia/tritonserver:{_TRITON_RELEASE}"

MODELS = "models"
"""The folder of an export that is a Triton model repository."""

HTTP, GRPC, METRICS = 8000, 8001, 8002
START = 'rm -f /dev/shm/triton_python_backend_shm_region_*; exec tritonserver "$@"'
"""A pod's memory outlives its container: a killed server leaves 1 MiB in it for each process of a model."""

_STOP_SECONDS = 30
"""Time that Triton gets to answer the requests in flight when its pod ends."""

BASE_MEMORY, MEMORY_FACTOR = 1 << 30, 3
"""Memory limit of a pod in bytes: the server with Python, and multiples of the model's size."""


def export_version(
    repository: Repository,
    model: str,
    target: Target,
    out: Path,
    *,
    version: int | None = None,
    uri: str = "",
) -> dict[str, Any]:
    """Write a version of a model into a folder.

    Args:
        repository: holds the version.
        model: ``<team>.<job>``.
        target: ``triton`` writes ``models/``, a Triton repository with this version alone, and with ``uri``
            a ``kubernetes.yaml``; ``kserve`` writes ``models/`` and ``inference-service.yaml``; ``onnx``
            writes ``model.onnx``, checked on the golden rows in ONNX Runtime, with ``encoder.json``.
        out: a new or empty folder.
        version: in the repository; by default the served one.
        uri: where you will store ``models/``, such as ``s3://bucket/folder``; ``kserve`` needs it.

    Returns:
        What was written: ``schema``, ``model``, ``version``, ``target``, ``files`` and, for ``onnx``,
        ``largest_difference`` from the golden rows.

    Raises:
        NotFoundError: the repository has no such version, or none is served.
        UserError: ``out`` has files, or the ``uri`` is missing or of another kind.
        ServingError: the version's files are damaged, or ONNX cannot express the model.
    """
    _check_arguments(target, out, uri)
    number = version or repository.serving(model)
    if number is None or number not in repository.versions(model):
        which = f"no version {version}" if version else "no served version"
        available = ", ".join(map(str, repository.verified_versions(model))) or "none"
        raise NotFoundError(ValidationIssue(f"{model} has {which}", hint=f"kept versions: {available}"))
    repository.check(model, number)
    out.mkdir(parents=True, exist_ok=True)
    summary: dict[str, Any] = {"schema": 1, "model": model, "version": number, "target": target}
    with TemporaryDirectory(prefix="dmls-export-") as scratch:
        folder = Path(scratch)
        serving = repository.format(model, number)
        for name in (*serving.files, *MODEL_FILES):
            repository.store.download(f"{model}/{number}/{name}", folder / name)
        if target == "onnx":
            summary["largest_difference"] = _write_onnx(serving, folder, out, model, number)
        else:
            _write_repository(folder, out / MODELS, model)
            _write_manifests(target, out, model, number, uri, serving.size(folder))
    files = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    return {**summary, "files": files}


def _check_arguments(target: Target, out: Path, uri: str) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(ValidationIssue(f"{out} is not empty", hint="name a new folder with --out"))
    if target == "onnx" and uri:
        raise UserError(ValidationIssue("an ONNX file has no --uri", hint="leave --uri out"))
    if target == "kserve" and not uri:
        hint = "for example --uri s3://models/iris: KServe reads the repository from there"
        raise UserError(ValidationIssue("the target kserve needs --uri", hint=hint))
    if uri and not re.fullmatch(r"(s3|gs|https|pvc)://[^\s\"'\\]+", uri):
        hint = "write s3://, gs://, https:// or pvc://, and where you will store the folder models/"
        raise UserError(ValidationIssue(f"{uri!r} is not a repository URL", hint=hint))


def _write_onnx(serving: ServingFormat, folder: Path, out: Path, model: str, version: int) -> float:
    model_json = json.loads((folder / "model.json").read_text("utf-8"))
    metadata = {"model": model, "version": str(version)}
    metadata |= {key: json.dumps(model_json[key], ensure_ascii=False) for key in ("features", "labels")}
    difference = serving.write_onnx(folder, out / "model.onnx", metadata)
    shutil.copyfile(folder / "encoder.json", out / "encoder.json")
    return difference


def _write_repository(folder: Path, root: Path, model: str) -> None:
    """Write a repository with one version, number 1, as a deployment does."""
    target = Repository(str(root), sharing=False)
    with target.lock(model):
        target.serve(model, target.add(model, folder))
    shutil.rmtree(root / BOOKKEEPING)


def _write_manifests(target: Target, out: Path, model: str, version: int, uri: str, size: int) -> None:
    if not uri:
        return
    import yaml

    metadata = {
        "name": resource_name(model),
        "annotations": {"dmls/model": model, "dmls/version": str(version)},
    }
    memory = f"{(BASE_MEMORY + MEMORY_FACTOR * size) >> 20}Mi"
    if target == "kserve":
        name, manifests = "inference-service.yaml", [_inference_service(metadata, uri, memory)]
    else:
        name, manifests = "kubernetes.yaml", [deployment(metadata, model, uri, memory), service(metadata)]
    # Without objects in common: YAML would write them as anchors and references.
    separate = json.loads(json.dumps(manifests))
    (out / name).write_text(yaml.safe_dump_all(separate, sort_keys=False), "utf-8")


def resource_name(model: str) -> str:
    """Return a model's name as that of a Kubernetes Service: letters, digits and hyphens, at most 63."""
    name = re.sub(r"[^a-z0-9]+", "-", model)
    return (name if name[0].isalpha() else f"m-{name}")[:63].rstrip("-")


def _inference_service(metadata: Mapping[str, Any], uri: str, memory: str) -> dict[str, Any]:
    """Return KServe's ``InferenceService`` for a Triton repository at ``uri``.

    Source: https://kserve.github.io/website (API reference, v1beta1).
    """
    model = {
        "modelFormat": {"name": "triton"},
        "protocolVersion": "v2",
        "runtimeVersion": _TRITON_RELEASE,
        "storageUri": uri,
        "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
        "resources": _resources(memory),
    }
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": dict(metadata),
        "spec": {"predictor": {"model": model}},
    }


def deployment(metadata: Mapping[str, Any], model: str, uri: str, memory: str) -> dict[str, Any]:
    """Return a Kubernetes ``Deployment`` of Triton with the repository at ``uri`` and no model control.

    Credentials for ``uri`` come from the Secret ``<name>-storage``, if there is one.
    """
    name = metadata["name"]
    labels = {"app.kubernetes.io/name": name}
    locked = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    ready = {"path": f"/v2/models/{table_name(model)}/ready", "port": "http"}
    container = {
        "name": "triton",
        "image": TRITON_IMAGE,
        "args": [
            *("sh", "-c", START, "sh"),
            f"--model-repository={uri}",
            "--disable-auto-complete-config",
            f"--exit-timeout-secs={_STOP_SECONDS // 2}",
        ],
        "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
        "envFrom": [{"secretRef": {"name": f"{name}-storage", "optional": True}}],
        "ports": [
            {"name": port, "containerPort": number}
            for port, number in (("http", HTTP), ("grpc", GRPC), ("metrics", METRICS))
        ],
        "startupProbe": {"httpGet": ready, "periodSeconds": 5, "failureThreshold": 60},
        "readinessProbe": {"httpGet": ready, "periodSeconds": 5},
        "livenessProbe": {"httpGet": {"path": "/v2/health/live", "port": "http"}, "periodSeconds": 10},
        "resources": _resources(memory),
        "securityContext": locked,
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108  in the pod
    }
    pod = {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": _STOP_SECONDS,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 1000,
        },
        "containers": [container],
        # Triton's Python backend passes tensors through shared memory; a pod has 64 MiB by default.
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "256Mi"}}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {**metadata, "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def service(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``Service`` in front of ``deployment``."""
    labels = {"app.kubernetes.io/name": metadata["name"]}
    ports = [
        {"name": name, "port": number, "targetPort": name}
        for name, number in (("http", HTTP), ("grpc", GRPC), ("metrics", METRICS))
    ]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {**metadata, "labels": labels},
        "spec": {"selector": labels, "ports": ports},
    }


def _resources(memory: str) -> dict[str, Any]:
    return {"requests": {"cpu": "1", "memory": memory}, "limits": {"memory": memory}}
