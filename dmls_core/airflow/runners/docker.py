"""The ``docker`` runner: the trainer in a locked-down container."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

from airflow.providers.common.compat.sdk import AirflowException
from airflow.providers.docker.operators.docker import DockerOperator
from airflow.sdk import Context
from docker.errors import APIError, NotFound
from docker.types import DeviceRequest

from dmls_core.airflow.connections import open_root
from dmls_core.airflow.job import Job, job_of
from dmls_core.airflow.runners.command import (
    ROOT_LABEL,
    data_limits,
    take_turn,
    trainer_arguments,
    trainer_labels,
)
from dmls_core.airflow.runners.docker_gpus import create_on_gpu
from dmls_core.airflow.runners.outcome import answer, raise_failure, runner_file
from dmls_core.airflow.runners.progress import ProgressWatcher
from dmls_core.airflow.settings import AirflowSettings, airflow_settings
from dmls_core.airflow.status import StatusReporter
from dmls_core.airflow.study_database import check_reachable, study_environment
from dmls_core.errors import RunnerError
from dmls_core.hardware import parse_memory
from dmls_core.store import Store

USER = "10001:10001"
"""User and group of the trainer image; never root."""

PIDS = 1024
"""Processes and threads that one trainer may have."""

GRACE = 3
"""Seconds between SIGTERM and SIGKILL; Airflow itself kills the task 5 s after it cancels it."""


class DockerTrainerOperator(DockerOperator):
    """A ``DockerOperator`` that runs ``dmls train`` without any privilege.

    No new privileges, all capabilities dropped, read-only root with a ``tmpfs`` at ``/tmp``, a non-root
    user, limits on memory, CPUs and processes, an init, labels that name dag, run, task and try. Nothing
    is templated, and nothing is unpickled: the trainer answers with ``result.json`` in the store.

    Args:
        plan: one worker's share of the search, as the task ``plan`` returned it.
    """

    template_fields = ()

    def __init__(self, *, plan: dict[str, Any], **kwargs: Any) -> None:
        settings = airflow_settings()
        super().__init__(
            image=settings.image,
            docker_url=settings.docker_url or None,
            network_mode=settings.docker_network,
            user=USER,
            mount_tmp_dir=False,
            log_opts_max_size="10m",
            log_opts_max_file="1",
            **kwargs,
        )
        self.plan = plan
        self._reporter: StatusReporter | None = None

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Run the container, pass its log on, and return the gist of ``result.json``."""
        settings = airflow_settings()
        store = open_root(settings)
        if store.local:
            raise RunnerError("the docker runner needs a root in S3: a container cannot see a folder")
        task = context["task_instance"]
        job = job_of(context)
        self.command = trainer_arguments(job, store, self.plan)
        worker = self.plan["worker"]
        labels = trainer_labels(job, context["run_id"], self.task_id, task.try_number, worker)
        self.labels = labels = labels | {ROOT_LABEL: settings.root}
        study = study_environment(job)
        check_reachable(study, settings.docker_network)
        # DockerOperator hands these over by the engine's interface: no command line holds them.
        self._private_environment = store.trainer_environment() | study | take_turn(job, store, self.plan)
        self._private_environment |= data_limits()
        if self.plan["engine"] == "gpu":
            self._take_gpu(settings.gpus)
        # The leader tells how the run goes.
        self._reporter = None if worker else StatusReporter(job, store, context["run_id"])
        self._harden(job, settings)
        self._remove_leftovers(labels)
        try:
            with ProgressWatcher(job, store, self._reporter) if self._reporter else nullcontext():
                super().execute(context)
        except AirflowException:
            raise_failure(job, store, self._ending(), self.plan, context)
        finally:
            self._record_and_remove(job, store)
        return answer(job, store, self.plan)

    def on_kill(self) -> None:
        """Stop and remove the container within the time that Airflow leaves, and say so."""
        if self.container:
            self.cli.stop(self.container["Id"], timeout=GRACE)
            self._remove(self.container["Id"])
        if self._reporter:
            self._reporter.stopped()

    def _harden(self, job: Job, settings: AirflowSettings) -> None:
        """Add to the host configuration what DockerOperator has no argument for."""
        memory = parse_memory(job.spec.resources.memory or settings.memory)
        self.mem_limit = memory
        locked: dict[str, Any] = {
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges:true"],
            "read_only": True,
            "tmpfs": {"/tmp": f"rw,nosuid,nodev,size={memory}"},  # noqa: S108 - inside the container
            "pids_limit": PIDS,
            "memswap_limit": memory,
            "init": True,
        }
        if settings.cpus:
            locked["nano_cpus"] = int(settings.cpus * 1e9)
        client = self.cli
        client.create_host_config = partial(  # type: ignore[method-assign]
            client.create_host_config, **locked
        )

    def _take_gpu(self, gpus: int) -> None:
        """Ask for one GPU: of the ``gpus`` that the engine has, one that no other trainer holds."""
        if gpus:
            client = self.cli
            client.create_container = partial(  # type: ignore[method-assign]
                create_on_gpu, client, client.create_container, gpus
            )
        else:
            # The spec insists on one, and nobody said how many there are: the engine gives its first.
            self.device_requests = [DeviceRequest(count=1, capabilities=[["gpu"]])]

    def _remove_leftovers(self, labels: Mapping[str, str]) -> None:
        """Remove containers that an earlier try of this run left behind; ``labels`` are this try's.

        Jobs with the same spec and data have the same run key, and several DMLS may share the engine.
        """
        same = [f"{name}={labels[name]}" for name in (ROOT_LABEL, "dmls.dag", "dmls.run_key", "dmls.worker")]
        for found in self.cli.containers(all=True, filters={"label": same}):
            self.log.warning("removing the container %s of an earlier try", found["Id"][:12])
            self._remove(found["Id"])

    def _remove(self, container: str) -> None:
        try:
            self.cli.remove_container(container, force=True)
        except NotFound:
            return
        except APIError as error:
            # Another removal of the same container is under way.
            self.log.info("container %s: %s", container[:12], error.explanation)

    def _ending(self) -> str:
        state = self._inspect().get("State", {})
        if state.get("OOMKilled"):
            return f"was killed because it needed more than {self.mem_limit} bytes of memory"
        return f"exited with code {state.get('ExitCode')}"

    def _inspect(self) -> dict[str, Any]:
        if not self.container:
            return {}
        try:
            found: dict[str, Any] = self.cli.inspect_container(self.container["Id"])
        except NotFound:
            return {}
        return found

    def _record_and_remove(self, job: Job, store: Store) -> None:
        """Keep what the engine says of the container with the run, then remove the container."""
        found = self._inspect()
        if not found:
            return
        state = found["State"]
        summary = {
            "schema": 1,
            "runner": "docker",
            "container": found["Id"],
            "image": found["Config"]["Image"],
            "labels": {k: v for k, v in found["Config"]["Labels"].items() if k.startswith("dmls.")},
            "exit_code": state["ExitCode"],
            "oom_killed": state["OOMKilled"],
            "started": state["StartedAt"],
            "finished": state["FinishedAt"],
        }
        self.log.info("Container %s: %s", found["Id"][:12], json.dumps(summary, sort_keys=True))
        store.put(job.run_file(runner_file(self.plan)), json.dumps(summary).encode())
        self._remove(found["Id"])
