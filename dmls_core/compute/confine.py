"""Run a command that dies with its parent and keeps to a memory limit.

``python -m dmls_core.compute.confine --memory BYTES -- COMMAND ...`` replaces itself by the command.
It runs in the child, where a thread of the parent cannot hold a lock (unlike a ``preexec_fn``).
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys

PR_SET_PDEATHSIG = 1
"""Option of Linux's ``prctl``: the signal that the process gets when its parent dies."""


def main(arguments: list[str]) -> None:
    """Set the limits and become the command."""
    separator = arguments.index("--")
    memory = int(arguments[arguments.index("--memory", 0, separator) + 1])
    command = arguments[separator + 1 :]
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        # The parent may have died before the call above.
        if os.getppid() != parent or parent == 1:
            sys.exit(143)
    # RLIMIT_DATA counts what the process allocates, not the libraries that it maps.
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.execvp(command[0], command)  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main(sys.argv[1:])
