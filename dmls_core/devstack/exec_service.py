"""Replace this process by a service, after ending processes that a killed predecessor left.

The supervisor runs ``python -m dmls_core.devstack.exec_service FILE``. FILE (mode 600) holds the service's
command, environment and working directory, so that no secret is an argument.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import sys
from pathlib import Path
from typing import Any

from dmls_core.devstack.processes import ID_VARIABLE, SERVICE_VARIABLE, end_marked


def main(file: Path) -> None:
    """End stale processes, remove stale files, and replace this process by the service."""
    service = json.loads(file.read_text())
    os.environ.update(service["environment"])
    os.chdir(service["folder"])
    end_marked(os.environ[ID_VARIABLE], os.environ[SERVICE_VARIABLE])
    clear_stale(service)
    command = service["command"]
    os.execvp(command[0], command)  # noqa: S606 - no shell is wanted


def clear_stale(service: dict[str, Any]) -> None:
    """Remove the files that a killed process of the service may have left."""
    for pattern in service.get("stale", ()):
        for stale in glob.glob(pattern):  # noqa: PTH207 - patterns are absolute
            with contextlib.suppress(OSError):
                Path(stale).unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
