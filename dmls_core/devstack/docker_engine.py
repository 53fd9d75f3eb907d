"""The Docker engine and the trainer's image, which decide the runner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_SECONDS = 3

TRAINER_IMAGE = "dmls-trainer:cpu"

PLATFORM_LABEL = "dmls.platform"
"""Label of every trainer's container: the id of the platform that started it."""


def engine_version() -> str | None:
    """Return the version of the Docker engine at ``DOCKER_HOST`` or the usual socket, if one responds."""
    version = _ask(lambda client: client.version().get("Version"))
    return None if version is None else str(version)


def has_trainer_image() -> bool:
    """Return whether an engine responds and has the trainer's image."""
    return _ask(lambda client: client.images.get(TRAINER_IMAGE).id) is not None


def choose_runner() -> Literal["docker", "process"]:
    """Return ``docker`` if an engine has the trainer's image, else ``process``."""
    return "docker" if has_trainer_image() else "process"


def remove_containers(platform_id: str) -> None:
    """Kill and remove the trainers' containers that a platform has left in the engine."""

    def remove(client: Any) -> None:  # noqa: ANN401 - the library has no types
        for container in client.containers.list(
            all=True, filters={"label": f"{PLATFORM_LABEL}={platform_id}"}
        ):
            container.remove(v=True, force=True)

    _ask(remove)


def _ask(question: Callable[[Any], object]) -> object | None:
    """Return the engine's response; ``None`` without an engine, its client library, or the object."""
    try:
        import docker
        from docker.errors import DockerException
    except ImportError:
        return None
    try:
        client = docker.from_env(timeout=_SECONDS)
        try:
            return question(client)
        finally:
            client.close()
    except (DockerException, OSError):
        return None
