"""Find and end processes by the marks that the platform leaves on them.

The environment of every process of a platform holds its id in ``DMLS_PLATFORM_ID`` and its service's name
in ``DMLS_SERVICE``. PostgreSQL overwrites its environment with its title, which holds the id.
"""

from __future__ import annotations

import contextlib
import re
import time
from dataclasses import dataclass

import psutil

from dmls_core.settings import ProcessSettings

ID_VARIABLE = ProcessSettings.variable("platform_id")
SERVICE_VARIABLE = ProcessSettings.variable("service")

TITLE = "dmls-{id}"
"""Mark in the title of a process (PostgreSQL's ``cluster_name``)."""

TITLED_SERVICE = "postgres"

TERM_SECONDS = 5.0
KILL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Marked:
    """A process of the platform; ``service`` is empty for processes of no service, such as trainers."""

    process: psutil.Process
    service: str


def find_marked(platform_id: str) -> list[Marked]:
    """Return the living processes of a platform, except this one and its ancestors."""
    own = psutil.Process()
    spared = {own.pid, *(parent.pid for parent in own.parents())}
    found = []
    for process in psutil.process_iter():
        if process.pid in spared:
            continue
        service = _service_of(process, platform_id)
        if service is not None:
            found.append(Marked(process, service))
    return found


def end_marked(platform_id: str, service: str | None = None) -> list[int]:
    """End the platform's processes (only those of ``service``, if given) and return their pids.

    SIGTERM first, then SIGKILL, also for processes that were started meanwhile.
    """
    ended: dict[int, None] = {}
    for kill in (False, True, True):
        found = [m.process for m in find_marked(platform_id) if service in (None, m.service)]
        if not found:
            break
        for process in found:
            ended[process.pid] = None
            with contextlib.suppress(psutil.Error):
                process.kill() if kill else process.terminate()
        _wait(found, KILL_SECONDS if kill else TERM_SECONDS)
    return list(ended)


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
    mark = re.escape(TITLE.format(id=platform_id))
    return TITLED_SERVICE if re.match(rf"(\S*/)?postgres\b.*\b{mark}\b", title) else None
