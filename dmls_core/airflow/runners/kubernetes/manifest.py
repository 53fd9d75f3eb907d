"""What a trainer's pod looks like, and what its status says about the trainer."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk import Context
from kubernetes.client import models as k8s

from dmls_core.airflow.runners.runner import LOST, TrainerExit
from dmls_core.airflow.runners.trainer import KEY_LABEL, LEADER_LABEL, ROOT_LABEL, Trainer, earlier_tries
from dmls_core.airflow.settings import AirflowSettings
from dmls_core.settings import NODE_HOST, NODE_TRAINERS

CONTAINER = "base"
"""Name of the trainer's container, as ``KubernetesPodOperator`` calls it."""

_USER = 10001
"""User and group of the trainer image; never root."""

GRACE_SECONDS = 3
"""Seconds between SIGTERM and SIGKILL; Airflow kills the task 5 s after it cancels it."""

_SCRATCH = k8s.V1Volume(name="scratch", empty_dir=k8s.V1EmptyDirVolumeSource())
"""On the node's disk: files in it do not count as memory."""

_SCRATCH_MOUNT = k8s.V1VolumeMount(name="scratch", mount_path="/tmp")  # noqa: S108 - inside the container

_NODE_ADDRESS = k8s.V1EnvVar(
    name=NODE_HOST,
    value_from=k8s.V1EnvVarSource(field_ref=k8s.V1ObjectFieldSelector(field_path="status.podIP")),
)
"""The pod's address, by which the pods of one run reach each other."""

TRIES_LABEL = "dmls.tries"
"""Label that the pods of all tries of a trainer share."""

_STUCK = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ImagePullBackOff",
        "InvalidImageName",
    }
)
"""Why a container waits if it needs a person, or another try, to start."""


def pod_name(key: str) -> str:
    """Return the name of a trainer's pod; a key may be longer than a name, and has other characters."""
    return f"dmls-{label_value(key)}"


def label_value(text: str) -> str:
    """Return a text as a label's value, by which objects are selected; annotations have the text itself."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _pod_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the pod's labels for a trainer's labels."""
    leader = {LEADER_LABEL: label_value(labels[LEADER_LABEL])} if LEADER_LABEL in labels else {}
    return {
        **leader,
        "app.kubernetes.io/name": "dmls-trainer",
        KEY_LABEL: label_value(labels[KEY_LABEL]),
        ROOT_LABEL: label_value(labels[ROOT_LABEL]),
        TRIES_LABEL: label_value(earlier_tries(labels[KEY_LABEL])),
    }


def build_pod(trainer: Trainer, settings: AirflowSettings, context: Context) -> k8s.V1Pod:
    """Return the manifest of a trainer's pod, as ``KubernetesPodOperator`` builds it, hardened."""
    name = pod_name(trainer.key)
    search = KubernetesPodOperator(
        task_id="search",
        kubernetes_conn_id=settings.kubernetes_conn_id,
        namespace=settings.kubernetes_namespace,
        pod_template_dict=_template(settings.kubernetes_pod),
        name=name,
        random_name_suffix=False,
        image=settings.image,
        arguments=[_literal(argument) for argument in trainer.arguments],
        labels=_pod_labels(trainer.labels),
        annotations=trainer.labels,
        env_vars=[_NODE_ADDRESS] if NODE_TRAINERS in trainer.environment else None,
        env_from=[k8s.V1EnvFromSource(secret_ref=k8s.V1SecretEnvSource(name=name))],
        container_resources=_resources(trainer, settings),
        volumes=[_SCRATCH],
        volume_mounts=[_SCRATCH_MOUNT],
        termination_grace_period=GRACE_SECONDS,
    )
    return _harden(search.build_pod_request_obj(context))


def _template(pod: dict[str, Any]) -> dict[str, Any]:
    """Return the template as a pod; the client refuses one without `containers`, so add an empty list."""
    return {**pod, "spec": {"containers": [], **pod.get("spec", {})}}


def _literal(argument: str) -> str:
    """Return an argument that Kubernetes passes as it is: it would replace ``$(NAME)`` by a variable."""
    return argument.replace("$(", "$$(")


def _harden(pod: k8s.V1Pod) -> k8s.V1Pod:
    """Take all privileges from a pod, whatever its template and Airflow's ``pod_mutation_hook`` say."""
    spec = pod.spec
    spec.automount_service_account_token = spec.enable_service_links = False
    spec.host_network = spec.host_pid = spec.host_ipc = False
    spec.restart_policy = "Never"
    spec.security_context = k8s.V1PodSecurityContext(
        run_as_non_root=True,
        run_as_user=_USER,
        run_as_group=_USER,
        fs_group=_USER,
        seccomp_profile=k8s.V1SeccompProfile(type="RuntimeDefault"),
    )
    spec.containers[0].security_context = k8s.V1SecurityContext(
        allow_privilege_escalation=False,
        capabilities=k8s.V1Capabilities(drop=["ALL"]),
        privileged=False,
        read_only_root_filesystem=True,
    )
    return pod


def _resources(trainer: Trainer, settings: AirflowSettings) -> k8s.V1ResourceRequirements:
    """Return what the pod reserves and may use: memory, limited CPUs, and a GPU on the `gpu` engine."""
    amounts = {"memory": str(trainer.memory)}
    if settings.cpus:
        amounts["cpu"] = str(settings.cpus)
    if trainer.engine == "gpu" and settings.kubernetes_gpu_resource:
        amounts[settings.kubernetes_gpu_resource] = "1"
    return k8s.V1ResourceRequirements(requests=amounts, limits=amounts)


def unscheduled(pod: k8s.V1Pod) -> str:
    """Return why no node has the pod yet, in the scheduler's words; empty if one has."""
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            return f"{condition.reason}: {condition.message}"
    return ""


def pod_exit(pod: k8s.V1Pod) -> TrainerExit | None:
    """Return how the trainer in a pod ended; None while it runs or waits."""
    status = pod.status
    state = next(
        (container.state for container in status.container_statuses or () if container.name == CONTAINER),
        None,
    )
    reason = f"was ended by the cluster: {status.reason}: {status.message}" if status.reason else ""
    if state and (ended := state.terminated):
        if ended.reason == "OOMKilled":
            limit = pod.spec.containers[0].resources.limits["memory"]
            reason = f"was killed because it needed more than {limit} bytes of memory"
        return TrainerExit(ended.exit_code, reason, _details(pod, ended))
    if state and (waiting := state.waiting) and waiting.reason in _STUCK:
        return TrainerExit(LOST, f"could not start: {waiting.reason}: {waiting.message}", _details(pod))
    if status.phase == "Failed":
        return TrainerExit(LOST, reason or "was ended by the cluster", _details(pod))
    return None


def _details(pod: k8s.V1Pod, ended: k8s.V1ContainerStateTerminated | None = None) -> dict[str, Any]:
    details = {
        "pod": pod.metadata.name,
        "namespace": pod.metadata.namespace,
        "node": pod.spec.node_name,
        "image": pod.spec.containers[0].image,
        "labels": {k: v for k, v in pod.metadata.annotations.items() if k.startswith("dmls.")},
    }
    if ended:
        times = {"started": ended.started_at, "finished": ended.finished_at}
        details |= {name: at.isoformat() if at else None for name, at in times.items()}
    return details
