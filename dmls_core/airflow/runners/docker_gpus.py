"""Lease one GPU to each trainer container, with Docker's unique container names as leases.

Asked for a number of GPUs, Docker gives every container the first ones. So each container requests one GPU by
its number and takes a name that contains the number. The engine refuses a second container of that name: two
trainers that start at once cannot both get the lease, and removing the container returns it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from docker import APIClient
from docker.errors import APIError, NotFound
from docker.types import DeviceRequest

log = logging.getLogger(__name__)

NAME_PREFIX = "dmls-gpu-"
"""Start of the name of a container that leases a GPU; the GPU's number follows."""

LABEL = "dmls.gpu"
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
                return create(**_on(gpu, options), name=f"{NAME_PREFIX}{gpu}")
            except APIError as error:
                if error.status_code != CONFLICT:
                    raise
                if not _free_name(engine, f"{NAME_PREFIX}{gpu}"):
                    break
    listed = engine.containers(all=True, filters={"label": LABEL})
    gpu = least_used(gpus, (found["Labels"][LABEL] for found in listed if found["State"] not in EXITED))
    log.warning("all %d GPUs are leased: this trainer shares GPU %d", gpus, gpu)
    return create(**_on(gpu, options))


def least_used(gpus: int, used: Iterable[str]) -> int:
    """Return the GPU with the fewest containers, given their GPU labels; of several, the lowest number."""
    count = Counter(used)
    return min(range(gpus), key=lambda gpu: count[str(gpu)])


def _on(gpu: int, options: dict[str, Any]) -> dict[str, Any]:
    request = DeviceRequest(device_ids=[str(gpu)], capabilities=[["gpu"]])
    return {key: value for key, value in options.items() if key != "name"} | {
        "labels": {**options["labels"], LABEL: str(gpu)},
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
