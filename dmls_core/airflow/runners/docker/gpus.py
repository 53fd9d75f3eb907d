"""GPUs of a Docker engine: probed by a small container, leased by the name of the trainer's container.

Asked for a number of GPUs, Docker gives every container the first ones. So each container requests one GPU by
its number and takes a name that contains the number. The engine refuses a second container of that name: two
trainers that start at once cannot both get the lease, and removing the container returns it.

A container is created under its trainer's key and then renamed. As long as another process creates or
renames one, the engine refuses the key; afterwards the label shows that the trainer exists.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from docker import APIClient
from docker.errors import APIError, NotFound
from docker.types import DeviceRequest

from dmls_core.airflow.runners.gpu_placement import PROBE, GpusBusyError, GpuSurvey, parse_probe
from dmls_core.airflow.runners.trainer import KEY_LABEL, ROOT_LABEL
from dmls_core.airflow.settings import AirflowSettings
from dmls_core.errors import RunnerError

log = logging.getLogger(__name__)

GPU_NAME_PREFIX = "dmls-gpu-"
"""Start of the name of a container that leases a GPU; the GPU's number follows, then ``.1`` for a second
trainer on it."""

GPU_LABEL = "dmls.gpu"
"""Label with the number of a container's GPU."""

_SHARES_LABEL = "dmls.gpu_shares"
"""Label with the number of shares of the GPU's memory that a container leases."""

_PROBE_SECONDS = 60
"""Longest time that a probe may take."""

EXITED = ("exited", "dead")

CONFLICT = 409
"""HTTP status of the engine if a name is taken."""


class TrainerExistsError(RunnerError):
    """Another process started the same trainer."""


def survey_engine(engine: APIClient, settings: AirflowSettings) -> GpuSurvey:
    """Probe the engine's GPUs with a container of the trainer's image, and count the leases of each.

    Raises:
        RunnerError: the engine has no GPUs, or the probe failed.
    """
    output = _probe(engine, settings.image, {ROOT_LABEL: settings.platform})
    held: Counter[int] = Counter()
    for container in engine.containers(all=True, filters={"label": GPU_LABEL}):
        if container["State"] not in EXITED and container["Names"][0].startswith(f"/{GPU_NAME_PREFIX}"):
            held[int(container["Labels"][GPU_LABEL])] += int(container["Labels"].get(_SHARES_LABEL, 1))
    return GpuSurvey(parse_probe(output, settings.gpus), held, settings.trainers_per_gpu)


def _probe(engine: APIClient, image: str, labels: dict[str, str]) -> str:
    options = engine.create_host_config(
        network_mode="none",
        cap_drop=["ALL"],
        security_opt=["no-new-privileges:true"],
        read_only=True,
        device_requests=[DeviceRequest(count=-1, capabilities=[["gpu", "utility"]])],
    )
    container_id = ""
    try:
        container_id = engine.create_container(
            image, entrypoint=["/bin/sh", "-c"], command=[PROBE], labels=labels, host_config=options
        )["Id"]
        engine.start(container_id)
        code = engine.wait(container_id, timeout=_PROBE_SECONDS)["StatusCode"]
        output: str = engine.logs(container_id).decode(errors="replace")
    except (APIError, OSError) as error:
        reason = error.explanation if isinstance(error, APIError) else error
        raise RunnerError(
            f"cannot probe the GPUs of the Docker engine ({reason}): it needs a driver and NVIDIA's "
            "container toolkit"
        ) from error
    finally:
        if container_id:
            with suppress(APIError):
                engine.remove_container(container_id, v=True, force=True)
    if code:
        raise RunnerError(
            f"nvidia-smi failed in a container of {image} with exit code {code}: {output[-300:]}"
        )
    return output


def create_on_gpu(
    engine: APIClient, create: Callable[..., dict[str, Any]], survey: GpuSurvey, memory: int, **options: Any
) -> dict[str, Any]:
    """Create a container that leases the best free GPU.

    Args:
        engine: the engine.
        create: the engine's ``create_container``.
        survey: its GPUs.
        memory: bytes of GPU memory that the trainer needs.
        options: of the container; ``name`` is the trainer's key, ``labels`` and ``host_config`` are extended.

    Raises:
        GpusBusyError: none is free.
        TrainerExistsError: there is another container with the same key.
    """
    for gpu in survey.free(memory):
        container = create(**_on(gpu.index, survey.shares_of(gpu, memory), options))
        try:
            _check_alone(engine, container["Id"], options["labels"][KEY_LABEL])
            # A GPU that was empty is taken under its first name only: no other trainer has come since.
            for share in range(survey.shares if survey.leases.get(gpu.index) else 1):
                name = f"{GPU_NAME_PREFIX}{gpu.index}" + (f".{share}" if share else "")
                if _rename(engine, container["Id"], name):
                    return container
        except BaseException:
            engine.remove_container(container["Id"], v=True, force=True)
            raise
        engine.remove_container(container["Id"], v=True, force=True)
    raise GpusBusyError(survey.reason(memory))


def _on(gpu: int, shares: int, options: dict[str, Any]) -> dict[str, Any]:
    request = DeviceRequest(device_ids=[str(gpu)], capabilities=[["gpu"]])
    return options | {
        "labels": {**options["labels"], GPU_LABEL: str(gpu), _SHARES_LABEL: str(shares)},
        "host_config": {**options["host_config"], "DeviceRequests": [request]},
    }


def _check_alone(engine: APIClient, container_id: str, key: str) -> None:
    containers = engine.containers(all=True, filters={"label": f"{KEY_LABEL}={key}"})
    if any(container["Id"] != container_id for container in containers):
        raise TrainerExistsError(f"the trainer {key} was started by another process")


def _rename(engine: APIClient, container: str, name: str) -> bool:
    """Give a container this name, also if one that has exited has it; return whether it has the name."""
    for _ in range(2):
        try:
            engine.rename(container, name)
        except APIError as error:
            if error.status_code != CONFLICT:
                raise
        else:
            return True
        if not _free_name(engine, name):
            break
    return False


def _free_name(engine: APIClient, name: str) -> bool:
    """Rename the container of this name if it has exited; return whether the name is free now."""
    try:
        holder = engine.inspect_container(name)
        if holder["State"]["Status"] not in EXITED:
            return False
        # Its trigger still reads its exit code, by its id.
        engine.rename(holder["Id"], f"ended-{holder['Id'][:12]}")
    except NotFound:
        return True
    except APIError as error:
        log.info("container %s: %s", name, error.explanation)  # another trainer was faster
    return True
