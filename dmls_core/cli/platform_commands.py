"""``dmls demo``, ``up``, ``down``, ``env``, ``doctor`` and ``sign``: run and keep a platform."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

import dmls_core
from dmls_core.cli.console import JobArgument, JsonOption, err, facts, out, parse_job, print_json
from dmls_core.devstack.docker_engine import TRAINER_IMAGE, engine_version
from dmls_core.errors import DmlsError, PlatformError
from dmls_core.settings import (
    SIGNING_KEY,
    STATE_FILE,
    ProcessSettings,
    load_settings,
    no_platform,
    state_folder,
)

if TYPE_CHECKING:
    from dmls_core.devstack.platform import Platform, State
    from dmls_core.extensions import Extension


CLIENT_SETTINGS = {
    "airflow_url": "DMLS_AIRFLOW_URL",
    "mlflow_uri": "MLFLOW_TRACKING_URI",
    "root": "DMLS_ROOT",
    "triton_grpc": "DMLS_TRITON_GRPC",
    "triton_http": "DMLS_TRITON_HTTP",
}
"""Setting of the platform -> the variable of ``dmls env``."""


def demo(once: Annotated[bool, typer.Option("--once", help="Stop the platform afterwards.")] = False) -> None:
    """Start the platform, and take the iris example from an upload to a served model."""
    from dmls_core.cli.demo import run_demo
    from dmls_core.devstack.platform import Platform

    platform = Platform()
    try:
        run_demo(platform, stays=not once)
    except DmlsError:
        if not once:
            err.print(f"logs are in {platform.folder / 'logs'}; `dmls down` stops the services")
        raise
    finally:
        if once:
            platform.down()
            out.print("the platform has stopped; its data is kept in " + escape(str(platform.folder)))
    if not once:
        out.print("the platform keeps running: `dmls down` (or `make down`) stops it")


def up(as_json: JsonOption = False) -> None:
    """Start Airflow, S3, MLflow and Triton on this machine; services that run already are kept."""
    from dmls_core.devstack.platform import Platform

    state = start(Platform())
    if as_json:
        print_json(state_json(state))
    else:
        print_addresses(state)


def down() -> None:
    """Stop the embedded platform. Its data is kept."""
    from dmls_core.devstack.platform import Platform

    platform = Platform()
    if not platform.folder.exists():
        out.print(f"there is no platform in {escape(str(platform.folder))}")
        return
    with err.status("stopping"):
        strays = platform.down()
    if strays:
        err.print(f"{len(strays)} stray processes were ended")
    out.print("the platform has stopped; its data is kept in " + escape(str(platform.folder)))


def env(as_json: JsonOption = False) -> None:
    """Print the variables that clients of S3, MLflow, Triton and the REST API need. They include secrets.

    They are shell exports. Set them with: eval "$(dmls env)"
    """
    import json
    import shlex

    try:
        state = json.loads((state_folder() / STATE_FILE).read_text())
    except FileNotFoundError:
        raise PlatformError(no_platform()) from None
    variables = {ProcessSettings.variable("home"): str(state_folder())}
    clients = ("AWS_", "MLFLOW_")
    variables |= {name: value for name, value in state["environment"].items() if name.startswith(clients)}
    for setting, name in CLIENT_SETTINGS.items():
        variables[name] = state["settings"][setting]
    if as_json:
        print_json({"schema": 1, "environment": variables})
        return
    for name, value in sorted(variables.items()):
        print(f"export {name}={shlex.quote(value)}")  # noqa: T201 - rich would replace :names: of emoji


@contextmanager
def use_embedded_airflow() -> Iterator[None]:
    """Configure Airflow as the embedded platform does, if there is one, while Airflow is imported.

    Raises:
        PlatformError: Airflow is not installed here.
    """
    import os

    from dmls_core.devstack.private_files import read_json

    service = read_json(state_folder() / "services" / "airflow-scheduler.json") or {"environment": {}}
    # Its hooks log each connection that they use.
    os.environ |= service["environment"] | {"AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING"}
    try:
        # On import, Airflow binds its log to stdout, where only the answer belongs.
        with redirect_stdout(sys.stderr):
            yield
    except ImportError as error:
        raise PlatformError(
            f"Airflow is not installed here ({error}): run this where its scheduler runs"
        ) from error


def print_capacity(jobs: float, rows: float, *, as_json: bool) -> None:
    """Print what the platform needs for ``jobs`` times its jobs and ``rows`` times their rows.

    Raises:
        PlatformError: Airflow is not installed here, or the store does not answer.
    """
    from dmls_core.monitoring.capacity import describe_plan

    with use_embedded_airflow():
        from dmls_core.airflow import database
        from dmls_core.airflow.operations.capacity import plan_platform

    with database.create_session() as session:
        plan = plan_platform(session, jobs=jobs, rows=rows)
    if as_json:
        print_json({"schema": 1, **asdict(plan)})
        return
    facts(describe_plan(plan))


def doctor(as_json: JsonOption = False) -> None:
    """Check this machine and its platform, and list the installed extensions."""
    from dmls_core.devstack.doctor import Check
    from dmls_core.devstack.platform import Platform
    from dmls_core.extensions import installed

    checks = Platform().doctor()
    try:
        extensions = installed()
    except PlatformError as error:
        extensions = []
        checks.append(Check("extensions", "broken", str(error)))
    if as_json:
        print_json(
            {
                "schema": 1,
                "checks": [check.as_json() for check in checks],
                "extensions": [asdict(extension) for extension in extensions],
            }
        )
    else:
        for check in checks:
            color = {"ok": "green", "missing": "yellow", "broken": "red"}[check.state]
            out.print(
                f"[{color}]{check.state:<8}[/] [bold]{escape(check.name):<18}[/] {escape(check.message)}"
            )
            if check.hint:
                out.print(f"{'':<27} {escape(check.hint)}")
        _print_extensions(extensions)
    if any(check.state == "broken" for check in checks):
        raise typer.Exit(PlatformError.exit_code)


def _print_extensions(extensions: Sequence[Extension]) -> None:
    """Print one line per extension point and package."""
    packages: dict[tuple[str, str], list[str]] = {}
    for extension in extensions:
        packages.setdefault((extension.group.removeprefix("dmls."), extension.package), []).append(
            extension.name
        )
    out.print("[bold]extensions[/]")
    for (group, package), names in packages.items():
        out.print(f"  {group:<10} {escape(package)}: {escape(', '.join(names))}")


def state_json(state: State) -> dict[str, object]:
    """Return the state of the platform as JSON, without secrets."""
    return {
        "schema": 1,
        "up": state.up,
        "folder": str(state.folder),
        "services": {
            service.name: {"state": service.state, "url": service.url, "log": service.log}
            for service in state.services
        },
    }


def start(platform: Platform) -> State:
    """Start the platform and print each step; raise ``PlatformError`` if a service does not start."""
    from dmls_core.cli.console import StepLines
    from dmls_core.cli.platform_commands import prepare_image

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


def sign(job: JobArgument, as_json: JsonOption = False) -> None:
    """Sign a job's versions of a release that did not sign, with the key in DMLS_SIGNING_KEY."""
    from dmls_core.serving import Repository
    from dmls_core.serving.deployment.signed_models import sign_versions
    from dmls_core.store import layout

    key = ProcessSettings.from_environment().signing_key
    if not key:
        raise PlatformError(f"there is no key to sign with: set {SIGNING_KEY}")
    model = layout.model_name(*parse_job(job))
    versions = sign_versions(Repository(load_settings().require("triton_repository")), model, key)
    if as_json:
        print_json({"schema": 1, "model": model, "signed": list(versions)})
    elif versions:
        out.print(f"{model}: signed version {', '.join(map(str, versions))}")
    else:
        out.print(f"{model}: every version has a signature")
