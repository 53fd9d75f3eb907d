"""Build the trainer's image where a Docker engine answers and DMLS runs from its source tree."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from rich.markup import escape

import dmls_core
from dmls_core.cli.console import err
from dmls_core.devstack.docker_engine import TRAINER_IMAGE, engine_version

REVISION = "org.opencontainers.image.revision"
"""Label that says which sources an image was built from."""

DOCKERFILE = "images/trainer/Dockerfile"
SOURCES = ("dmls_core/**/*.py", "dmls_core/**/*.toml", "requirements/*.txt", "pyproject.toml", DOCKERFILE)
KEPT_LINES = 12


def prepare_image() -> None:
    """Build the trainer's image unless it is there and as new as the sources.

    Where no engine answers there is nothing to do; where the build fails a line says so, and the
    platform trains in processes.
    """
    root = Path(dmls_core.__file__).parents[1]
    if not (root / DOCKERFILE).is_file() or engine_version() is None:
        return
    import docker
    from docker.errors import DockerException, ImageNotFound

    revision = source_revision(root)
    client = docker.from_env(timeout=600)
    try:
        try:
            if client.images.get(TRAINER_IMAGE).labels.get(REVISION) == revision:
                return
        except ImageNotFound:
            err.print(f"building the image {TRAINER_IMAGE}: some minutes, the first time")
        last = _build(client, root, revision)
        if last:
            err.print(f"[yellow]the image {TRAINER_IMAGE} was not built:[/]\n{escape(last)}")
    except (DockerException, OSError) as error:
        err.print(f"[yellow]the image {TRAINER_IMAGE} was not built:[/] {escape(str(error))}")
    finally:
        client.close()


def source_revision(root: Path) -> str:
    """Return a hash of all that the image is made from."""
    digest = hashlib.sha256()
    for pattern in SOURCES:
        for file in sorted(root.glob(pattern)):
            digest.update(f"{file.relative_to(root)}\0".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _build(client: Any, root: Path, revision: str) -> str:  # noqa: ANN401 - the library has no types
    """Build; return the last lines of the log if it failed, nothing if it did not."""
    lines: list[str] = []
    with err.status("building") as status:
        for entry in client.api.build(
            path=str(root),
            dockerfile=DOCKERFILE,
            target="cpu",
            tag=TRAINER_IMAGE,
            buildargs={"REVISION": revision},
            network_mode="host",
            rm=True,
            decode=True,
        ):
            text = str(entry.get("stream") or entry.get("error") or "").strip()
            if text:
                lines.append(text)
                status.update(f"building: {escape(text.splitlines()[0][:100])}")
            if "error" in entry:
                return "\n".join(lines[-KEPT_LINES:])
    return ""
