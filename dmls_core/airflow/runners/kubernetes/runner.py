"""The runner ``kubernetes``: the trainer in a pod without privileges.

What needs the cluster's client, whose import takes two seconds of CPU time, is in ``trainer_pods`` and
``pod_manifest``: DAG files are parsed without it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING

from airflow.sdk import Context

from dmls_core.airflow.runners.runner import LOST, IsActive, Runner, TrainerExit
from dmls_core.airflow.runners.trainer import KEY_LABEL, Trainer, check_reachable, node_trainers
from dmls_core.airflow.runners.trainer_operator import TrainerOperator
from dmls_core.airflow.settings import airflow_settings
from dmls_core.errors import RunnerError

if TYPE_CHECKING:
    from dmls_core.airflow.runners.kubernetes.pods import TrainerPods

_CLOCK_SKEW_SECONDS = 60
"""Overlap of two reads of a log: only its age can be requested, and clocks differ."""


class KubernetesTrainerOperator(TrainerOperator):
    """Run ``dmls train`` in a pod without any privilege.

    ``KubernetesPodOperator`` builds it from the template ``kubernetes_pod`` of the settings. Whatever
    the template says, it has no new privileges and no capabilities, a read-only root, the runtime's seccomp
    profile, a non-root user, no token of a service account, and a volume on the node's disk at ``/tmp``.
    """

    def start(self, trainer: Trainer, context: Context) -> None:
        """Create the secret and the pod, which the cluster starts when a node has room for it."""
        from dmls_core.airflow.runners.kubernetes.manifest import build_pod
        from dmls_core.airflow.runners.kubernetes.pods import API_ERRORS, message_of

        settings = airflow_settings()
        if trainer.local:
            raise RunnerError("the kubernetes runner needs a root in S3: a pod cannot see a folder")
        check_reachable(trainer.environment, "of the pod")
        pods = KubernetesRunner(settings).pods
        nodes = node_trainers(trainer)
        pod, *node_pods = (build_pod(each, settings, context) for each in (trainer, *nodes))
        try:
            for name in pods.other_tries(trainer.key):
                self.log.warning("Deleting the pod %s of an earlier try", name)
                pods.delete(name)
            # The trainer last: once it exists, an interrupted start is complete.
            for node, node_pod in zip(nodes, node_pods, strict=True):
                pods.create(node_pod, node.environment)
            pods.create(pod, trainer.environment)
        except API_ERRORS as error:
            with suppress(*API_ERRORS):
                pods.delete_nodes(trainer.key)
            raise RunnerError(f"Kubernetes does not start the trainer's pod: {message_of(error)}") from error
        self.log.info("The trainer is the pod %s in the namespace %s", pod.metadata.name, pods.namespace)


class KubernetesRunner(Runner):
    """Watch and end trainers that are pods of a cluster."""

    operator_class = KubernetesTrainerOperator
    sends_events = True
    starts_nodes = "trainers"

    @property
    def service_errors(self) -> tuple[type[Exception], ...]:
        """Errors of the API server and of the connection to it."""
        from dmls_core.airflow.runners.kubernetes.pods import API_ERRORS

        return API_ERRORS

    @cached_property
    def pods(self) -> TrainerPods:
        """The pods of this platform's trainers."""
        from dmls_core.airflow.runners.kubernetes.pods import TrainerPods

        settings = self.settings
        return TrainerPods(settings.kubernetes_conn_id, settings.kubernetes_namespace, settings.platform)

    def check(self) -> list[str]:
        """Check that the API answers and may be used in the namespace."""
        return self.pods.check()

    def exists(self, key: str) -> bool:
        """Return whether there is a pod of this key."""
        return self.pods.get(key) is not None

    def exit_of(self, key: str) -> TrainerExit | None:
        """Return how the pod ended: its exit code, or why the cluster ended or could not start it."""
        from dmls_core.airflow.runners.kubernetes.manifest import pod_exit

        if pod := self.pods.get(key):
            return pod_exit(pod)
        return TrainerExit(LOST, "lost its pod: another process or the cluster deleted it")

    def changes(self) -> Iterator[str]:
        """Yield the keys of pods that changed."""
        return self.pods.changes()

    def read_log(self, key: str, position: str) -> tuple[list[str], str]:
        """Return the pod's next lines; ``position`` is the last one's time, or why the pod waits."""
        from dmls_core.airflow.runners.kubernetes.manifest import unscheduled

        pod = self.pods.get(key)
        if pod is None:
            return [], position
        if reason := unscheduled(pod):
            line = f"The pod waits: {reason}"
            return ([] if line == position else [line]), line
        last, seconds = position if position[:4].isdecimal() else "", None
        if last:
            age = datetime.now(UTC) - datetime.fromisoformat(f"{last[:19]}+00:00")
            seconds = max(1, int(age.total_seconds()) + _CLOCK_SKEW_SECONDS)
        stamped = [line.partition(" ") for line in self.pods.log(pod.metadata.name, seconds)]
        new = [(stamp, line) for stamp, _, line in stamped if stamp > last]
        return [line for _, line in new], new[-1][0] if new else last

    def stop(self, key: str) -> None:
        """Delete the pod and its secret, and those of its nodes."""
        from dmls_core.airflow.runners.kubernetes.manifest import pod_name

        self.pods.delete_nodes(key)
        self.pods.delete(pod_name(key))

    def reap(self, is_active: IsActive) -> list[str]:
        """Delete orphaned pods, and secrets whose pod is gone."""
        removed = []
        for name, created, labels in self.pods.all():
            if time.time() - created < self.min_age_seconds or KEY_LABEL not in labels:
                continue
            if not is_active(labels["dmls.dag"], labels["dmls.run"]):
                self.pods.delete(name)
                removed.append(name)
        return removed
