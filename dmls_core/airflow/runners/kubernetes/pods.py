"""The pods of trainers in one namespace of a cluster, with the secrets that hold their environments.

A pod's name is a hash of the trainer's key, so the API refuses a second pod of the same trainer. Its secret
has the same name, and the cluster deletes it with the pod.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any

from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook
from airflow.sdk.exceptions import AirflowException
from kubernetes.client import ApiException, CoreV1Api, V1DeleteOptions, V1Pod
from kubernetes.client import models as k8s
from kubernetes.config import ConfigException
from kubernetes.watch import Watch
from urllib3.exceptions import HTTPError

from dmls_core.airflow.runners.kubernetes.manifest import (
    CONTAINER,
    GRACE_SECONDS,
    TRIES_LABEL,
    label_value,
    pod_name,
)
from dmls_core.airflow.runners.trainer import KEY_LABEL, LEADER_LABEL, ROOT_LABEL, earlier_tries

API_ERRORS = (ApiException, HTTPError, OSError)
"""What a call of the API raises if it is refused or not answered."""

NOT_FOUND, CONFLICT, BAD_REQUEST = 404, 409, 400

_WATCH_SECONDS = 300
"""Length of one watch; the API server would end it at some time, too."""


class TrainerPods:
    """The pods of one platform's trainers in one namespace; ``platform`` is its name."""

    def __init__(self, connection: str, namespace: str, platform: str) -> None:
        self.connection = connection
        self.namespace = namespace
        self._selector = f"{ROOT_LABEL}={label_value(platform)}"

    @cached_property
    def _api(self) -> CoreV1Api:
        return KubernetesHook(conn_id=self.connection).core_v1_client

    def check(self) -> list[str]:
        """Return what keeps Airflow from using the namespace, with the remedy."""
        try:
            self._api.list_namespaced_pod(self.namespace, limit=1)
        except ApiException as error:
            lack = f"Kubernetes refuses to list pods in the namespace {self.namespace} ({message_of(error)})"
            return [f"{lack}: bind the role of docs/how-to/kubernetes.md to Airflow's service account"]
        except (AirflowException, ConfigException, HTTPError, OSError) as error:
            lack = f"no Kubernetes API answers ({error})"
            return [f"{lack}: run Airflow in the cluster, or add the connection {self.connection}"]
        return []

    def get(self, key: str) -> V1Pod | None:
        """Return a trainer's pod, or None if there is none."""
        with _unless(NOT_FOUND):
            return self._api.read_namespaced_pod(pod_name(key), self.namespace)
        return None

    def all(self) -> list[tuple[str, float, dict[str, str]]]:
        """Return the pods, and secrets whose pod is gone: name, time of creation, the trainer's labels."""
        metadata: dict[str, Any] = {}
        for read in (self._api.list_namespaced_secret, self._api.list_namespaced_pod):
            items = read(self.namespace, label_selector=self._selector).items
            metadata |= {item.metadata.name: item.metadata for item in items}
        return [(name, m.creation_timestamp.timestamp(), m.annotations or {}) for name, m in metadata.items()]

    def other_tries(self, key: str) -> list[str]:
        """Return the names of the pods of a trainer's other tries, nodes included."""
        selector = f"{TRIES_LABEL}={label_value(earlier_tries(key))}"
        pods = self._api.list_namespaced_pod(self.namespace, label_selector=selector).items
        others = [pod for pod in pods if pod.metadata.labels.get(LEADER_LABEL) != label_value(key)]
        return [pod.metadata.name for pod in others if pod.metadata.name != pod_name(key)]

    def changes(self) -> Iterator[str]:
        """Yield the keys of pods that changed, for some minutes."""
        events = Watch().stream(
            self._api.list_namespaced_pod,
            self.namespace,
            label_selector=self._selector,
            timeout_seconds=_WATCH_SECONDS,
        )
        for event in events:
            yield (event["object"].metadata.annotations or {}).get(KEY_LABEL, "")

    def log(self, name: str, seconds: int | None) -> list[str]:
        """Return the lines of the last ``seconds``, or all, each after its time stamp and a space."""
        try:
            response = self._api.read_namespaced_pod_log(
                name,
                self.namespace,
                container=CONTAINER,
                timestamps=True,
                _preload_content=False,
                **({} if seconds is None else {"since_seconds": seconds}),
            )
        except ApiException as error:
            if error.status in (BAD_REQUEST, NOT_FOUND):  # the container has not started, or is gone
                return []
            raise
        lines: list[str] = response.data.decode(errors="replace").splitlines()
        return lines

    def create(self, pod: V1Pod, environment: dict[str, str]) -> None:
        """Create a pod and the secret with its environment; do nothing if another process did."""
        meta = pod.metadata
        secret = k8s.V1Secret(
            metadata=k8s.V1ObjectMeta(name=meta.name, labels=meta.labels, annotations=meta.annotations),
            string_data=environment,
        )
        with _unless(CONFLICT):
            self._api.create_namespaced_secret(self.namespace, secret)
        with _unless(CONFLICT):
            uid = self._api.create_namespaced_pod(self.namespace, pod).metadata.uid
            owner = k8s.V1OwnerReference("v1", kind="Pod", name=meta.name, uid=uid)
            owned = k8s.V1Secret(metadata=k8s.V1ObjectMeta(owner_references=[owner]))
            with suppress(ApiException):  # without an owner, `delete` deletes it
                self._api.patch_namespaced_secret(meta.name, self.namespace, owned)

    def delete(self, name: str) -> None:
        """Delete a pod and its secret, and wait until the pod is gone; do nothing if there is none."""
        # Without grace, the API forgets a pod whose node does not answer.
        any(self._delete_pod(name, grace) for grace in (GRACE_SECONDS, 0))
        with _unless(NOT_FOUND):
            self._api.delete_namespaced_secret(name, self.namespace)

    def delete_nodes(self, key: str) -> None:
        """Delete the pods of a trainer's nodes at once: nothing in them is needed later."""
        selector = f"{LEADER_LABEL}={label_value(key)}"
        for pod in self._api.list_namespaced_pod(self.namespace, label_selector=selector).items:
            self._delete_pod(pod.metadata.name, 0)
            with _unless(NOT_FOUND):
                self._api.delete_namespaced_secret(pod.metadata.name, self.namespace)

    def _delete_pod(self, name: str, grace: int) -> bool:
        """Delete a pod; return whether it is gone after its grace period."""
        end = time.monotonic() + grace + 1
        with _unless(NOT_FOUND):
            options = V1DeleteOptions(grace_period_seconds=grace)
            self._api.delete_namespaced_pod(name, self.namespace, body=options)
            while time.monotonic() < end:
                self._api.read_namespaced_pod(name, self.namespace)
                time.sleep(0.2)
            return False
        return True


@contextmanager
def _unless(status: int) -> Iterator[None]:
    """Leave the block if the API answers with this HTTP status."""
    try:
        yield
    except ApiException as error:
        if error.status != status:
            raise


def message_of(error: Exception) -> str:
    """Return the API's message, which names the object and the reason, or what the connection says."""
    try:
        return str(json.loads(error.body)["message"])  # type: ignore[attr-defined]
    except (AttributeError, KeyError, TypeError, ValueError):
        return str(error)
