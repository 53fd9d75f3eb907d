"""The runner ``docker``: the trainer in a container without privileges, on a GPU of its own if needed."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any

from airflow.providers.docker.operators.docker import DockerOperator
from airflow.sdk import Context
from docker import APIClient
from docker.errors import APIError, DockerException, NotFound
from docker.types import Mount

from dmls_core.airflow.runners.docker.gpus import (
    CONFLICT,
    EXITED,
    TrainerExistsError,
    create_on_gpu,
    survey_engine,
)
from dmls_core.airflow.runners.gpu_placement import GpuSurvey
from dmls_core.airflow.runners.runner import LOST, IsActive, Runner, TrainerExit
from dmls_core.airflow.runners.trainer import (
    KEY_LABEL,
    LEADER_LABEL,
    ROOT_LABEL,
    Trainer,
    check_reachable,
    node_trainers,
)
from dmls_core.airflow.runners.trainer_operator import TrainerOperator
from dmls_core.airflow.settings import airflow_settings
from dmls_core.errors import RunnerError
from dmls_core.settings import CACHE_FOLDER

_USER = "10001:10001"
"""User and group of the trainer image; never root."""

_MAX_PIDS = 1024

_CACHE = "/var/cache/dmls"
"""Folder of the trainer image, writable for its user, at which its team's volume of matrices is mounted."""

_GRACE_SECONDS = 3
"""Seconds between SIGTERM and SIGKILL; Airflow kills the task 5 s after it cancels it."""

_SAME_TRAINER = (ROOT_LABEL, "dmls.dag", "dmls.run_key", "dmls.worker")
"""Labels that all tries of a trainer share; the run key alone is not unique, as a hash of spec and data."""


class DockerTrainerOperator(TrainerOperator, DockerOperator):
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
            user=_USER,
            mount_tmp_dir=False,
            log_opts_max_size="10m",
            log_opts_max_file="1",
            **kwargs,
        )

    def start(self, trainer: Trainer, context: Context) -> None:
        """Create and start the container, and leave it running."""
        settings = airflow_settings()
        if trainer.local:
            raise RunnerError("the docker runner needs a root in S3: a container cannot see a folder")
        check_reachable(trainer.environment, settings.docker_network)
        self.command, self.labels = trainer.arguments, trainer.labels
        self.container_name = trainer.key
        # DockerOperator passes these through the engine's API: they are in no command line.
        self._private_environment = dict(trainer.environment)
        self.mounts = [Mount(target="/tmp", source=None, type="volume")]  # noqa: S108 - inside the container
        if trainer.cache:
            self.mounts.append(Mount(target=_CACHE, source=trainer.cache, type="volume"))
            self._private_environment[CACHE_FOLDER] = _CACHE
        self._remove_earlier_tries(trainer)
        if trainer.engine == "gpu":
            self._request_gpu(trainer.gpu_memory)
        self._harden(trainer.memory, settings.cpus)
        if trainer.nodes:
            self._start_nodes_first(trainer)
        # DockerOperator cannot defer: without a stream of output and an end to wait for, it only starts.
        client: Any = self.cli
        client.attach = lambda **_: ()
        client.wait = lambda *_: {"StatusCode": 0}
        try:
            DockerOperator.execute(self, context)
        except TrainerExistsError:
            self.log.info("The trainer runs already")
        except APIError as error:
            if self.container or error.status_code != CONFLICT:
                _remove_nodes(self.cli, trainer.key)
                raise
            self.log.info("The trainer runs already")

    def _harden(self, memory: int, cpus: float) -> None:
        """Add host configuration that ``DockerOperator`` has no argument for."""
        self.mem_limit = memory
        options: dict[str, Any] = {
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges:true"],
            "read_only": True,
            "pids_limit": _MAX_PIDS,
            "memswap_limit": memory,
            "init": True,
        }
        if cpus:
            options["nano_cpus"] = int(cpus * 1e9)
        client = self.cli
        client.create_host_config = partial(  # type: ignore[method-assign]
            client.create_host_config, **options
        )

    def _request_gpu(self, memory: int) -> None:
        """Create the container on the best free GPU of the engine; it needs ``memory`` bytes there."""
        client = self.cli
        survey = survey_engine(client, airflow_settings())
        client.create_container = partial(  # type: ignore[method-assign]
            create_on_gpu, client, client.create_container, survey, memory
        )

    def _start_nodes_first(self, trainer: Trainer) -> None:
        """Start the nodes' containers, with all options of the trainer's, before its own is created."""
        client: Any = self.cli
        create = client.create_container

        def create_all(**options: Any) -> Any:
            for node in node_trainers(trainer):
                _start_node(client, partial(create, **options), node)
            return create(**options)

        client.create_container = create_all

    def _remove_earlier_tries(self, trainer: Trainer) -> None:
        same = [f"{name}={trainer.labels[name]}" for name in _SAME_TRAINER]
        for container in self.cli.containers(all=True, filters={"label": same}):
            labels = container["Labels"]
            if trainer.key not in (labels.get(KEY_LABEL), labels.get(LEADER_LABEL)):
                self.log.warning("removing the container %s of an earlier try", container["Id"][:12])
                _remove(self.cli, container["Id"])


class DockerRunner(Runner):
    """Start trainers as containers of a Docker engine."""

    operator_class = DockerTrainerOperator
    sends_events = True
    starts_nodes = "trainers"

    @property
    def service_errors(self) -> tuple[type[Exception], ...]:
        """Errors of the engine and of the connection to it."""
        return (DockerException, OSError)

    def check(self) -> list[str]:
        """Check that the engine answers and has the trainer image."""
        try:
            with self.engine() as engine:
                if not engine.images(name=self.settings.image):
                    return [f"the Docker engine lacks the image {self.settings.image}: build or pull it"]
        except DockerException as error:
            return [f"no Docker engine answers ({error}): start one, or set docker_url"]
        return []

    def exists(self, key: str) -> bool:
        """Return whether there is a container of this key that was started."""
        with self.engine() as engine:
            container = _inspect(engine, key)
        return container is not None and container["State"]["Status"] != "created"

    def exit_of(self, key: str) -> TrainerExit | None:
        """Return the container's exit code, and what the engine knows about it."""
        with self.engine() as engine:
            container = _inspect(engine, key)
        if container is None:
            return TrainerExit(LOST, "lost its container: another process removed it")
        return _container_exit(container)

    def changes(self) -> Iterator[str]:
        """Yield the keys of the engine's events that a container has ended or is gone."""
        filters = {"type": "container", "event": ["die", "destroy"], "label": KEY_LABEL}
        with self.engine() as engine:
            for event in engine.events(decode=True, filters=filters):
                yield event["Actor"]["Attributes"][KEY_LABEL]

    def read_log(self, key: str, position: str) -> tuple[list[str], str]:
        """Return the container's next lines; ``position`` is the time stamp of the last one."""
        with self.engine() as engine:
            if (container := _inspect(engine, key)) is None:
                return [], position
            since = int(datetime.fromisoformat(f"{position[:19]}+00:00").timestamp()) if position else None
            output: bytes = engine.logs(container["Id"], timestamps=True, since=since)
        stamped = [line.partition(" ") for line in output.decode(errors="replace").splitlines()]
        lines = [line for stamp, _, line in stamped if stamp > position]
        return lines, max((stamp for stamp, _, _ in stamped), default=position)

    def stop(self, key: str) -> None:
        """Stop and remove the container and those of its nodes."""
        with self.engine() as engine:
            for container in containers(engine, key):
                with suppress(NotFound):
                    engine.stop(container["Id"], timeout=_GRACE_SECONDS)
                _remove(engine, container["Id"])
            _remove_nodes(engine, key)

    def reap(self, is_active: IsActive) -> list[str]:
        """Remove orphaned containers from the engine."""
        removed = []
        with self.engine() as engine:
            labeled = {"label": [f"{ROOT_LABEL}={self.settings.platform}"]}
            for container in engine.containers(all=True, filters=labeled):
                labels = container["Labels"]
                if time.time() - container["Created"] < self.min_age_seconds:
                    continue
                # Without a DAG it is a probe that a worker left when it was killed.
                if "dmls.dag" in labels and is_active(labels["dmls.dag"], labels["dmls.run"]):
                    continue
                _remove(engine, container["Id"])
                removed.append(container["Id"][:12])
        return removed

    def survey_gpus(self) -> GpuSurvey:
        """Probe the engine's GPUs, and read their leases."""
        with self.engine() as engine:
            return survey_engine(engine, self.settings)

    def engine(self) -> APIClient:
        """Return a client of the engine."""
        url = self.settings.docker_url or os.environ.get("DOCKER_HOST") or "unix://var/run/docker.sock"
        return APIClient(base_url=url, version="auto")


log = logging.getLogger(__name__)


def containers(engine: APIClient, key: str) -> list[dict[str, Any]]:
    """Return the container of a trainer, if there is one, whatever its state."""
    listed: list[dict[str, Any]] = engine.containers(all=True, filters={"label": f"{KEY_LABEL}={key}"})
    return listed


def _inspect(engine: APIClient, key: str) -> dict[str, Any] | None:
    """Return what the engine knows about a trainer's container; None if there is none."""
    for container in containers(engine, key):
        with suppress(NotFound):
            answer: dict[str, Any] = engine.inspect_container(container["Id"])
            return answer
    return None


def _start_node(engine: APIClient, create: Callable[..., dict[str, Any]], node: Trainer) -> None:
    """Start a node's container, unless it runs already; ``create`` knows the options of its leader's."""
    if (container := _inspect(engine, node.key)) and container["State"]["Status"] in ("created", *EXITED):
        _remove(engine, container["Id"])
    try:
        container = create(
            command=node.arguments, name=node.key, labels=node.labels, environment=node.environment
        )
    except APIError as error:
        if error.status_code != CONFLICT:
            raise
        return
    engine.start(container["Id"])


def _remove_nodes(engine: APIClient, key: str) -> None:
    """Remove the containers of a trainer's nodes at once: nothing in them is needed later."""
    for container in engine.containers(all=True, filters={"label": f"{LEADER_LABEL}={key}"}):
        _remove(engine, container["Id"])


def _remove(engine: APIClient, container: str) -> None:
    """Remove a container with its volume, unless another process does."""
    try:
        engine.remove_container(container, v=True, force=True)
    except NotFound:
        return
    except APIError as error:
        # Another process is removing the same container.
        log.info("container %s: %s", container[:12], error.explanation)


def _container_exit(container: dict[str, Any]) -> TrainerExit | None:
    """Return how a container ended, from the engine's answer about it; None while it runs."""
    state = container["State"]
    if state["Status"] not in EXITED:
        return None
    memory = container["HostConfig"]["Memory"]
    details = {
        "container": container["Id"],
        "image": container["Config"]["Image"],
        "labels": {k: v for k, v in container["Config"]["Labels"].items() if k.startswith("dmls.")},
        "oom_killed": state["OOMKilled"],
        "started": state["StartedAt"],
        "finished": state["FinishedAt"],
    }
    oom = f"was killed because it needed more than {memory} bytes of memory"
    return TrainerExit(state["ExitCode"], oom if state["OOMKilled"] else "", details)
