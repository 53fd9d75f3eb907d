"""Checks of the machine and of its platform, run in parallel, each with a hint how to fix it."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dmls_core.devstack.context import Context, load_identity
from dmls_core.devstack.doctor import machine
from dmls_core.devstack.doctor.machine import Check
from dmls_core.devstack.doctor.services import service_checks
from dmls_core.devstack.platform import Platform, State, is_free
from dmls_core.errors import DmlsError
from dmls_core.settings import load_settings

__all__ = ["Check", "examine"]


def examine(platform: Platform) -> list[Check]:
    """Return the results of all checks of this machine and its platform, embedded or not.

    The embedded platform may never have been started.
    """
    state, ports = platform.status(), platform.ports()
    settings = load_settings()
    embedded = state.settings is not None and settings.airflow_url == state.settings.airflow_url
    checks: list[Callable[[], Iterable[Check]]] = [
        lambda: [machine.check_python()],
        # One after the other: packaging reads markers with `ast`, which fails when two threads of Python
        # 3.11 do so at once (SystemError: AST constructor recursion depth mismatch).
        lambda: [machine.check_packages(extra) for extra in machine.EXTRAS],
        lambda: [machine.check_notifiers()],
        lambda: [machine.check_uv(state.folder.parent)],
        lambda: [machine.check_disk(state.folder)],
        lambda: [machine.check_docker()],
        lambda: [machine.check_gpus()],
        lambda: [machine.check_fil(_triton_pid(state))],
        lambda: [machine.check_nvforest()],
        lambda: _folder(state.folder),
        lambda: _embedded(state),
        lambda: _ports(state, ports),
        *service_checks(settings, _context(state) if embedded else None),
    ]
    with ThreadPoolExecutor(len(checks)) as pool:
        return [check for results in pool.map(_safely, checks) for check in results]


def _safely(check: Callable[[], Iterable[Check]]) -> list[Check]:
    try:
        return list(check())
    except DmlsError as error:
        return [Check("check", "broken", str(error))]
    except Exception as error:  # noqa: BLE001  one check must not hide the others
        return [Check("check", "broken", f"{type(error).__name__}: {error}")]


def _folder(folder: Path) -> list[Check]:
    """Check that other users cannot read the state folder."""
    if not folder.exists():
        return []
    paths = [folder, *(file for file in folder.iterdir() if file.is_file())]
    open_ones = [path.name for path in paths if stat.S_IMODE(path.stat().st_mode) & 0o077]
    if open_ones:
        hint = f"chmod 700 {folder}; chmod 600 its files; credentials in it may be known to others"
        return [Check("state folder", "broken", f"others may read {', '.join(open_ones)}", hint)]
    return [Check("state folder", "ok", f"{folder}, yours alone")]


def _embedded(state: State) -> list[Check]:
    """Check that the services of the embedded platform run, unless it is down."""
    if state.settings is None:
        return [Check("embedded platform", "missing", "down", "`dmls up` starts it")]
    ill = [service for service in state.services if service.state != "RUNNING"]
    if not ill:
        return [Check("embedded platform", "ok", f"{len(state.services)} services run")]
    return [
        Check(f"service {service.name}", "broken", service.state, f"`dmls up` starts it; see {service.log}")
        for service in ill
    ]


def _triton_pid(state: State) -> int | None:
    return next((one.pid for one in state.services if one.name == "triton" and one.state == "RUNNING"), None)


def _context(state: State) -> Context:
    return Context(state.folder, load_identity(state.folder / "identity.json"))


def _ports(state: State, ports: dict[str, int]) -> list[Check]:
    """Check that the ports of a platform that is down are still free."""
    if state.settings is not None or not ports:
        return []
    taken = [f"{port} ({name})" for name, port in ports.items() if not is_free(port)]
    if taken:
        message = f"taken by others: {', '.join(taken)}"
        return [Check("ports", "missing", message, "`dmls up` chooses other ones for these")]
    return [Check("ports", "ok", f"{len(ports)} ports are free")]
