"""Start the embedded platform: build the trainer's image, print each step, and print the addresses."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

import dmls_core
from dmls_core.cli.console import err, facts, literal
from dmls_core.devstack.docker_engine import TRAINER_IMAGE, engine_version
from dmls_core.errors import PlatformError
from dmls_core.settings import STATE_FILE

if TYPE_CHECKING:
    from dmls_core.devstack.platform import Platform, State


def start(platform: Platform) -> State:
    """Start the platform and print each step; raise ``PlatformError`` if a service does not start."""
    from dmls_core.cli.console import StepLines

    prepare_image()
    with StepLines() as steps:
        return platform.up(steps)


def print_addresses(state: State) -> None:
    """Print the address of each service, and which FIL backend Triton has."""
    from dmls_core.devstack.mlflow import USER
    from dmls_core.devstack.triton import running_backend
    from dmls_core.serving.formats.treelite.fil_backend import DESCRIPTIONS

    settings = state.settings
    if settings is None:
        raise PlatformError("the platform is down")
    urls = {service.name: service.url for service in state.services}
    triton = next(service for service in state.services if service.name == "triton")
    facts(
        [
            ("Airflow", f"{settings.airflow_url}  user {settings.airflow_username}"),
            ("MLflow", f"{settings.mlflow_uri}  user {USER}"),
            ("S3", f"{urls['s3']}  {settings.root}"),
            ("Triton", f"http://{settings.triton_http}  grpc://{settings.triton_grpc}"),
            ("served by", DESCRIPTIONS[running_backend(triton.pid)]),
            ("passwords, keys", str(state.folder / STATE_FILE)),
            ("logs", str(state.folder / "logs")),
        ]
    )


_REVISION = "org.opencontainers.image.revision"
"""Label of an image with the hash of its sources."""

DOCKERFILE = "images/trainer/Dockerfile"
SOURCES = (
    *("dmls_core/**/*.py", "dmls_core/**/*.toml", "dmls_core/html/templates/**/*.*"),
    *("requirements/*.txt", "pyproject.toml", DOCKERFILE),
)
_KEPT_LINES = 12


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
            if client.images.get(TRAINER_IMAGE).labels.get(_REVISION) == revision:
                return
        except ImageNotFound:
            err.print(f"building the image {TRAINER_IMAGE}: the first time, this takes minutes")
        last = _build(client, root, revision)
        if last:
            err.print(f"[yellow]the image {TRAINER_IMAGE} was not built:[/]\n{escape(last)}")
    except (DockerException, OSError) as error:
        err.print(f"[yellow]the image {TRAINER_IMAGE} was not built:[/] {literal(error)}")
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
                status.update(f"building: {literal(text.splitlines()[0][:100])}")
            if "error" in entry:
                return "\n".join(lines[-_KEPT_LINES:])
    return ""
