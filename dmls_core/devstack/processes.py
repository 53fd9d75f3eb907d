"""Start the processes of services, and find and end them by the platform's id in their environment.

The environment of every process of a platform holds its id in ``DMLS_PLATFORM_ID`` and its service's name
in ``DMLS_SERVICE``. PostgreSQL overwrites its environment with its title, which holds the id.

The supervisor runs ``python -m dmls_core.devstack.processes FILE``, which ends processes that a killed
predecessor left and replaces itself by the service. FILE (mode 600) holds the service's command, environment
and working directory, so that no secret is an argument.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil

from dmls_core.settings import ProcessSettings

ID_VARIABLE = ProcessSettings.variable("platform_id")
SERVICE_VARIABLE = ProcessSettings.variable("service")

TITLE = "dmls-{id}"
"""Mark in the title of a process (PostgreSQL's ``cluster_name``)."""

_TITLED_SERVICE = "postgres"

TERM_SECONDS = 5.0
_KILL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Marked:
    """A process of the platform; ``service`` is empty for processes of no service, such as trainers."""

    process: psutil.Process
    service: str


def find_marked(platform_id: str) -> list[Marked]:
    """Return the living processes of a platform, except this one and its ancestors."""
    current = psutil.Process()
    spared = {current.pid, *(parent.pid for parent in current.parents())}
    marked_processes = []
    for process in psutil.process_iter():
        if process.pid in spared:
            continue
        service = _service_of(process, platform_id)
        if service is not None:
            marked_processes.append(Marked(process, service))
    return marked_processes


def end_marked(platform_id: str, service: str | None = None) -> list[Marked]:
    """End and return the platform's processes (only those of ``service``, if given).

    SIGTERM first, then SIGKILL, also for processes that were started meanwhile.
    """
    ended: dict[int, Marked] = {}
    for kill in (False, True, True):
        running = [marked for marked in find_marked(platform_id) if service in (None, marked.service)]
        if not running:
            break
        for marked in running:
            ended[marked.process.pid] = marked
            with contextlib.suppress(psutil.Error):
                marked.process.kill() if kill else marked.process.terminate()
        _wait([marked.process for marked in running], _KILL_SECONDS if kill else TERM_SECONDS)
    return list(ended.values())


def _wait(processes: list[psutil.Process], seconds: float) -> None:
    """Wait until the processes have ended or are zombies, which only their parent can remove."""
    end = time.monotonic() + seconds
    while processes and time.monotonic() < end:
        time.sleep(0.05)
        processes = [process for process in processes if _is_alive(process)]


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _service_of(process: psutil.Process, platform_id: str) -> str | None:
    """Return the service of a process; ``None`` if it does not belong to the platform."""
    try:
        if not _is_alive(process):
            return None
        with contextlib.suppress(psutil.AccessDenied):
            environment = process.environ()
            if environment.get(ID_VARIABLE) == platform_id:
                return environment.get(SERVICE_VARIABLE, "")
        title = " ".join(process.cmdline())
    except (psutil.Error, OSError):
        return None
    platform_title = re.escape(TITLE.format(id=platform_id))
    return _TITLED_SERVICE if re.match(rf"(\S*/)?postgres\b.*\b{platform_title}\b", title) else None


def main(file: Path) -> None:
    """End stale processes, remove stale files, and replace this process by the service."""
    service = json.loads(file.read_text())
    os.environ.update(service["environment"])
    os.chdir(service["folder"])
    end_marked(os.environ[ID_VARIABLE], os.environ[SERVICE_VARIABLE])
    clear_stale(service)
    command = [*service["command"], *late_arguments(service.get("late_arguments", ()))]
    os.execvp(command[0], command)  # noqa: S606 - no shell is wanted


def late_arguments(call: Sequence[str]) -> list[str]:
    """Return what ``module:function``, the first item of ``call``, returns for the others."""
    if not call:
        return []
    module, _, function = call[0].partition(":")
    arguments: list[str] = getattr(import_module(module), function)(*call[1:])
    return arguments


def clear_stale(service: dict[str, Any]) -> None:
    """Remove the files that a killed process of the service may have left."""
    for pattern in service.get("stale", ()):
        for stale in glob.glob(pattern):  # noqa: PTH207 - patterns are absolute
            with contextlib.suppress(OSError):
                Path(stale).unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
