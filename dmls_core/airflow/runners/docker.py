"""The runner ``docker``: the trainer in a container without privileges, on a GPU of its own if needed.

Asked for a number of GPUs, Docker gives every container the first ones. So each container requests one GPU by
its number and takes a name that contains the number. The engine refuses a second container of that name: two
trainers that start at once cannot both get the lease, and removing the container returns it.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from airflow.providers.common.compat.sdk import AirflowException
from airflow.providers.docker.operators.docker import DockerOperator
from airflow.sdk import Context
from docker import APIClient
from docker.errors import APIError, DockerException, NotFound
from docker.types import DeviceRequest, Mount

from dmls_core.airflow.runners import IsActive, Runner, TrainerExit, TrainerOperator
from dmls_core.airflow.runners.trainer import ROOT_LABEL, Trainer, check_reachable
from dmls_core.airflow.settings import airflow_settings
from dmls_core.errors import RunnerError

USER = "10001:10001"
"""User and group of the trainer image; never root."""

MAX_PIDS = 1024

GRACE_SECONDS = 3
"""Seconds between SIGTERM and SIGKILL; Airflow kills the task 5 s after it cancels it."""

KILLED = 137
"""Exit code after SIGKILL."""

SAME_TRAINER = (ROOT_LABEL, "dmls.dag", "dmls.run_key", "dmls.worker")
"""Labels that all tries of a trainer share; the run key alone is not unique, as a hash of spec and data."""


class DockerTrainerOperator(TrainerOperator, DockerOperator):  # type: ignore[misc]
    """Run ``dmls train`` in a container without any privilege.

    No new privileges, all capabilities dropped, a read-only root, a volume at ``/tmp`` that is removed with
    the container, a non-root user, limits of memory, CPUs and processes, an init, and labels that name DAG,
    run, task and try. The volume is on disk: files in it do not count as memory, as those of a ``tmpfs`` do.
    """

    template_fields = ()

    def __init__(self, **kwargs: Any) -> None:
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

    def run_trainer(self, trainer: Trainer, context: Context) -> TrainerExit:
        """Run the container, log its output, and remove it."""
        settings = airflow_settings()
        if trainer.local:
            raise RunnerError("the docker runner needs a root in S3: a container cannot see a folder")
        check_reachable(trainer.environment, settings.docker_network)
        self.command, self.labels = trainer.arguments, trainer.labels
        # DockerOperator passes these through the engine's API: they are in no command line.
        self._private_environment = trainer.environment
        self._harden(trainer.memory, settings.cpus)
        if trainer.engine == "gpu":
            self._request_gpu(settings.gpus)
        self._remove_earlier_tries(trainer.labels)
        try:
            DockerOperator.execute(self, context)
        except AirflowException as error:
            self.log.info("%s", error)
            return self._exit(trainer, failed=True)
        else:
            return self._exit(trainer, failed=False)
        finally:
            self._remove_own()

    def cancel(self) -> None:
        """Stop and remove the container."""
        if self.container:
            with suppress(NotFound):
                self.cli.stop(self.container["Id"], timeout=GRACE_SECONDS)
            self._remove_own()

    def _harden(self, memory: int, cpus: float) -> None:
        """Add host configuration that ``DockerOperator`` has no argument for."""
        self.mem_limit = memory
        self.mounts = [Mount(target="/tmp", source=None, type="volume")]  # noqa: S108 - inside the container
        options: dict[str, Any] = {
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges:true"],
            "read_only": True,
            "pids_limit": MAX_PIDS,
            "memswap_limit": memory,
            "init": True,
        }
        if cpus:
            options["nano_cpus"] = int(cpus * 1e9)
        client = self.cli
        client.create_host_config = partial(  # type: ignore[method-assign]
            client.create_host_config, **options
        )

    def _request_gpu(self, gpus: int) -> None:
        """Request one of the engine's ``gpus`` GPUs, if possible one that no other trainer holds."""
        if gpus:
            client = self.cli
            client.create_container = partial(  # type: ignore[method-assign]
                create_on_gpu, client, client.create_container, gpus
            )
        else:
            # The spec requires a GPU and the settings do not count them: the engine assigns its first.
            self.device_requests = [DeviceRequest(count=1, capabilities=[["gpu"]])]

    def _remove_earlier_tries(self, labels: dict[str, str]) -> None:
        same = [f"{name}={labels[name]}" for name in SAME_TRAINER]
        for found in self.cli.containers(all=True, filters={"label": same}):
            self.log.warning("removing the container %s of an earlier try", found["Id"][:12])
            self._remove(found["Id"])

    def _exit(self, trainer: Trainer, *, failed: bool) -> TrainerExit:
        found = self._inspect()
        if not found:
            return (
                TrainerExit(KILLED, "lost its container: another process removed it")
                if failed
                else TrainerExit(0)
            )
        state = found["State"]
        details = {
            "container": found["Id"],
            "image": found["Config"]["Image"],
            "labels": {k: v for k, v in found["Config"]["Labels"].items() if k.startswith("dmls.")},
            "oom_killed": state["OOMKilled"],
            "started": state["StartedAt"],
            "finished": state["FinishedAt"],
        }
        self.log.info("Container %s: %s", found["Id"][:12], json.dumps(details, sort_keys=True))
        oom = f"was killed because it needed more than {trainer.memory} bytes of memory"
        return TrainerExit(state["ExitCode"], oom if state["OOMKilled"] else "", details)

    def _inspect(self) -> dict[str, Any]:
        if not self.container:
            return {}
        try:
            found: dict[str, Any] = self.cli.inspect_container(self.container["Id"])
        except NotFound:
            return {}
        return found

    def _remove_own(self) -> None:
        if self.container:
            self._remove(self.container["Id"])

    def _remove(self, container: str) -> None:
        try:
            self.cli.remove_container(container, v=True, force=True)
        except NotFound:
            return
        except APIError as error:
            # Another process is removing the same container.
            self.log.info("container %s: %s", container[:12], error.explanation)


class DockerRunner(Runner):
    """Start trainers as containers of a Docker engine."""

    operator_class = DockerTrainerOperator

    def check(self) -> list[str]:
        """Check that the engine answers and has the trainer image."""
        try:
            with self._engine() as engine:
                if not engine.images(name=self.settings.image):
                    return [f"the Docker engine lacks the image {self.settings.image}: build or pull it"]
        except DockerException as error:
            return [f"no Docker engine answers ({error}): start one, or set docker_url"]
        return []

    def reap(self, is_active: IsActive) -> list[str]:
        """Remove orphaned containers from the engine."""
        removed = []
        with self._engine() as engine:
            labeled = {"label": [f"{ROOT_LABEL}={self.settings.root}"]}
            for found in engine.containers(all=True, filters=labeled):
                labels = found["Labels"]
                young = time.time() - found["Created"] < self.min_age_seconds
                if young or is_active(labels["dmls.dag"], labels["dmls.run"]):
                    continue
                with suppress(NotFound):
                    engine.remove_container(found["Id"], v=True, force=True)
                removed.append(found["Id"][:12])
        return removed

    def _engine(self) -> APIClient:
        url = self.settings.docker_url or os.environ.get("DOCKER_HOST") or "unix://var/run/docker.sock"
        return APIClient(base_url=url, version="auto")


log = logging.getLogger(__name__)

GPU_NAME_PREFIX = "dmls-gpu-"
"""Start of the name of a container that leases a GPU; the GPU's number follows."""

GPU_LABEL = "dmls.gpu"
"""Label with the number of a container's GPU, leased or shared."""

EXITED = ("exited", "dead")

CONFLICT = 409
"""HTTP status of the engine if a name is taken."""


def create_on_gpu(
    engine: APIClient, create: Callable[..., dict[str, Any]], gpus: int, **options: Any
) -> dict[str, Any]:
    """Create a container on a GPU that no other trainer leases, else on that with the fewest trainers.

    All are leased if the pool has more slots than the engine has GPUs, or another platform uses the engine.
    ``create`` is the engine's ``create_container``; ``options`` include ``labels`` and ``host_config``.
    """
    for gpu in range(gpus):
        for _ in range(2):
            try:
                return create(**_on(gpu, options), name=f"{GPU_NAME_PREFIX}{gpu}")
            except APIError as error:
                if error.status_code != CONFLICT:
                    raise
                if not _free_name(engine, f"{GPU_NAME_PREFIX}{gpu}"):
                    break
    listed = engine.containers(all=True, filters={"label": GPU_LABEL})
    gpu = least_used(gpus, (found["Labels"][GPU_LABEL] for found in listed if found["State"] not in EXITED))
    log.warning("all %d GPUs are leased: this trainer shares GPU %d", gpus, gpu)
    return create(**_on(gpu, options))


def least_used(gpus: int, used: Iterable[str]) -> int:
    """Return the GPU with the fewest containers, given their GPU labels; of several, the lowest number."""
    count = Counter(used)
    return min(range(gpus), key=lambda gpu: count[str(gpu)])


def _on(gpu: int, options: dict[str, Any]) -> dict[str, Any]:
    request = DeviceRequest(device_ids=[str(gpu)], capabilities=[["gpu"]])
    return {key: value for key, value in options.items() if key != "name"} | {
        "labels": {**options["labels"], GPU_LABEL: str(gpu)},
        "host_config": {**options["host_config"], "DeviceRequests": [request]},
    }


def _free_name(engine: APIClient, name: str) -> bool:
    """Rename the container of this name if it has exited; return whether the name is free now."""
    try:
        holder = engine.inspect_container(name)
        if holder["State"]["Status"] not in EXITED:
            return False
        # Its operator still reads its exit code, by its id.
        engine.rename(holder["Id"], f"{name}-{holder['Id'][:12]}")
    except NotFound:
        return True
    except APIError as error:
        log.info("container %s: %s", name, error.explanation)  # another trainer was faster
    return True
