from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import docker
import pytest
from docker.errors import DockerException, ImageNotFound

from dmls_core.devstack.docker_engine import (
    PLATFORM_LABEL,
    TRAINER_IMAGE,
    choose_runner,
    engine_version,
    has_trainer_image,
    remove_containers,
)


class FakeEngine:
    """As much of a Docker client as is asked."""

    def __init__(self, images: tuple[str, ...] = (), containers: dict[str, str] | None = None) -> None:
        self.left = dict(containers or {})
        self.closed = 0
        self.images = SimpleNamespace(get=self.image)
        self.containers = SimpleNamespace(list=self.listed)
        self.known = images

    def version(self) -> dict[str, str]:
        return {"Version": "20.10"}

    def image(self, name: str) -> Any:
        if name not in self.known:
            raise ImageNotFound(name)
        return SimpleNamespace(id="sha256:1")

    def listed(self, *, all: bool, filters: dict[str, str]) -> list[Any]:  # noqa: A002
        assert all
        return [
            SimpleNamespace(remove=partial(self.remove, name))
            for name, platform in list(self.left.items())
            if filters == {"label": f"{PLATFORM_LABEL}={platform}"}
        ]

    def remove(self, name: str, *, v: bool, force: bool) -> None:
        assert v
        assert force
        del self.left[name]

    def close(self) -> None:
        self.closed += 1


def use(monkeypatch: pytest.MonkeyPatch, engine: FakeEngine | None) -> None:
    def from_env(timeout: float) -> FakeEngine:
        assert timeout < 10
        if engine is None:
            raise DockerException("no engine")
        return engine

    monkeypatch.setattr(docker, "from_env", from_env)


def test_without_an_engine_trainers_are_processes(monkeypatch: pytest.MonkeyPatch):
    use(monkeypatch, None)
    assert engine_version() is None
    assert choose_runner() == "process"
    remove_containers("id")


def test_an_engine_without_the_trainers_image_does_not_make_the_runner_docker(
    monkeypatch: pytest.MonkeyPatch,
):
    engine = FakeEngine()
    use(monkeypatch, engine)
    assert engine_version() == "20.10"
    assert not has_trainer_image()
    assert choose_runner() == "process"
    assert engine.closed == 3


def test_an_engine_with_the_image_does(monkeypatch: pytest.MonkeyPatch):
    use(monkeypatch, FakeEngine(images=(TRAINER_IMAGE,)))
    assert choose_runner() == "docker"


def test_only_the_platforms_own_containers_are_removed(monkeypatch: pytest.MonkeyPatch):
    engine = FakeEngine(containers={"a": "ours", "b": "theirs", "c": "ours"})
    use(monkeypatch, engine)
    remove_containers("ours")
    assert set(engine.left) == {"b"}


def test_the_usual_way_to_no_engine(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent.sock")
    assert engine_version() is None
