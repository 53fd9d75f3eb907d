"""One GPU for one trainer: Docker gives a container's name once, so the name is the lease.

Asked for a number of GPUs, Docker gives every container the first ones. So each container asks for one GPU by
its number and is named after it. The engine refuses a second container of that name, whoever asks: two
trainers that start at once cannot both get it, and nothing has to be given back when a container is removed.
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

NAME = "dmls-gpu-"
"""Name of the container that holds a GPU, before the GPU's number."""

LABEL = "dmls.gpu"
"""Label with the number of a container's GPU, for those as well that share one."""

ENDED = ("exited", "dead")
"""States of a container that holds nothing any more."""

CONFLICT = 409
"""What the engine answers where a name is taken."""


def create_on_gpu(
    engine: APIClient, create: Callable[..., dict[str, Any]], gpus: int, **options: Any
) -> dict[str, Any]:
    """Create a container that has a GPU which no other trainer on the engine holds.

    Where all are held (the pool has more slots than the engine has GPUs, or another DMLS uses the engine), it
    shares the one with the fewest trainers.

    Args:
        engine: the Docker engine.
        create: its ``create_container``.
        gpus: how many GPUs the engine has; they are numbered from 0.
        options: of ``create``; ``labels`` and ``host_config`` among them.

    Returns:
        What ``create`` returned.

    Raises:
        APIError: the engine refuses the container.
    """
    for gpu in range(gpus):
        for _ in range(2):
            try:
                return create(**_on(gpu, options), name=f"{NAME}{gpu}")
            except APIError as error:
                if error.status_code != CONFLICT:
                    raise
                if not _take_name(engine, f"{NAME}{gpu}"):
                    break
    listed = engine.containers(all=True, filters={"label": LABEL})
    gpu = least_held(gpus, (found["Labels"][LABEL] for found in listed if found["State"] not in ENDED))
    log.warning("all %d GPUs are held by trainers: this one shares GPU %d", gpus, gpu)
    return create(**_on(gpu, options))


def least_held(gpus: int, held: Iterable[str]) -> int:
    """Return the number of the GPU that the fewest hold, the first of several.

    Args:
        gpus: how many there are.
        held: the label of each container that holds one.
    """
    count = Counter(held)
    return min(range(gpus), key=lambda gpu: count[str(gpu)])


def _on(gpu: int, options: dict[str, Any]) -> dict[str, Any]:
    request = DeviceRequest(device_ids=[str(gpu)], capabilities=[["gpu"]])
    return {key: value for key, value in options.items() if key != "name"} | {
        "labels": {**options["labels"], LABEL: str(gpu)},
        "host_config": {**options["host_config"], "DeviceRequests": [request]},
    }


def _take_name(engine: APIClient, name: str) -> bool:
    """Take the name from a container that has ended; say whether it is free now."""
    try:
        holder = engine.inspect_container(name)
        if holder["State"]["Status"] not in ENDED:
            return False
        # Whoever started it still wants to read how it ended: by its id.
        engine.rename(holder["Id"], f"{name}-{holder['Id'][:12]}")
    except NotFound:
        return True
    except APIError as error:
        log.info("container %s: %s", name, error.explanation)  # another trainer was quicker
    return True
