"""``dmls demo``, ``up``, ``down``, ``env``, ``doctor`` and ``sign``: run and keep a platform."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from dmls_core.cli.console import JobArgument, JsonOption, err, literal, out, parse_job, print_json
from dmls_core.cli.platform_start import print_addresses, start
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
    from dmls_core.devstack.platform import State
    from dmls_core.extensions import Extension


_CLIENT_SETTINGS = {
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
            out.print("the platform has stopped; its data is kept in " + literal(platform.folder))
    if not once:
        out.print("the platform keeps running: `dmls down` (or `make down`) stops it")


def up(as_json: JsonOption = False) -> None:
    """Start Airflow, S3, MLflow and Triton on this machine; services already running are left alone."""
    from dmls_core.devstack.platform import Platform

    state = start(Platform())
    if as_json:
        print_json(_state_json(state))
    else:
        print_addresses(state)


def down() -> None:
    """Stop the embedded platform. Its data is kept."""
    from dmls_core.devstack.platform import Platform

    platform = Platform()
    if not platform.folder.exists():
        out.print(f"there is no platform in {literal(platform.folder)}")
        return
    with err.status("stopping"):
        strays = platform.down()
    if strays:
        err.print(f"{len(strays)} stray processes were ended")
    out.print("the platform has stopped; its data is kept in " + literal(platform.folder))


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
    for setting, name in _CLIENT_SETTINGS.items():
        variables[name] = state["settings"][setting]
    if as_json:
        print_json({"schema": 1, "environment": variables})
        return
    for name, value in sorted(variables.items()):
        print(f"export {name}={shlex.quote(value)}")  # noqa: T201 - a shell reads it as it is


def doctor(as_json: JsonOption = False) -> None:
    """Check this machine and its platform, and list the installed extensions."""
    from dmls_core.devstack.doctor import Check, examine
    from dmls_core.devstack.platform import Platform
    from dmls_core.extensions import installed

    checks = examine(Platform())
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
                f"[{color}]{check.state:<8}[/] [bold]{literal(check.name):<18}[/] {literal(check.message)}"
            )
            if check.hint:
                out.print(f"{'':<27} {literal(check.hint)}")
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
        out.print(f"  {group:<10} {literal(package)}: {literal(', '.join(names))}")


def _state_json(state: State) -> dict[str, object]:
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


def sign(job: JobArgument, as_json: JsonOption = False) -> None:
    """Sign a job's versions of earlier releases, with the key in DMLS_SIGNING_KEY."""
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
        out.print(f"{model}: every version is signed")
