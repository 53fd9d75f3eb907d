"""Build the trainer's image if a Docker engine answers and DMLS runs from its source tree."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from rich.markup import escape

import dmls_core
from dmls_core.cli.console import err
from dmls_core.devstack.docker_engine import TRAINER_IMAGE, engine_version

REVISION = "org.opencontainers.image.revision"
"""Label of an image with the hash of its sources."""

DOCKERFILE = "images/trainer/Dockerfile"
SOURCES = (
    *("dmls_core/**/*.py", "dmls_core/**/*.toml", "dmls_core/html/templates/**/*.*"),
    *("requirements/*.txt", "pyproject.toml", DOCKERFILE),
)
KEPT_LINES = 12


def prepare_image() -> None:
    """Build the trainer's image unless one of the same sources exists.

    Without a Docker engine, or if the build fails (it prints why), the platform trains in processes.
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
            err.print(f"building the image {TRAINER_IMAGE}: the first time, this takes minutes")
        last = _build(client, root, revision)
        if last:
            err.print(f"[yellow]the image {TRAINER_IMAGE} was not built:[/]\n{escape(last)}")
    except (DockerException, OSError) as error:
        err.print(f"[yellow]the image {TRAINER_IMAGE} was not built:[/] {escape(str(error))}")
    finally:
        client.close()


def source_revision(root: Path) -> str:
    """Return a hash of the sources of the image."""
    digest = hashlib.sha256()
    for pattern in SOURCES:
        for file in sorted(root.glob(pattern)):
            digest.update(f"{file.relative_to(root)}\0".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _build(client: Any, root: Path, revision: str) -> str:  # noqa: ANN401 - the library has no types
    """Build the image; return the last lines of the log if it failed, else an empty text."""
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
