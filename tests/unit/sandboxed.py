"""Functions that the sandbox's tests call in a child process."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from dmls_core import sandbox
from dmls_core.errors import PlatformError, SpecError, ValidationIssue


def echo(*values: Any) -> list[Any]:
    print("this is no answer")
    return list(values)


def process() -> int:
    return os.getpid()


def variables(*names: str) -> list[str | None]:
    return [os.environ.get(name) for name in names]


def abort() -> None:
    os.abort()


def abort_for_memory() -> None:
    """End as Rust does."""
    print("memory allocation of 64 bytes failed", file=sys.stderr)
    os.abort()


def receive(number: int) -> None:
    """Get a signal as another process sends it, with the default action, which Python changes for SIGINT."""
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    time.sleep(60)


def leave(code: int) -> None:
    os._exit(code)


def segfault() -> None:
    ctypes.string_at(0)


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def burn() -> None:
    while True:
        pass


def spin(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def allocate(size: int) -> int:
    return len(bytearray(size))


mapped: list[mmap.mmap] = []


def map_file(path: str) -> None:
    """Map a file until the process ends, and load all of it."""
    with Path(path).open("rb") as file:
        mapped.append(mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE | mmap.MAP_POPULATE, mmap.PROT_READ))


def reject() -> None:
    print("thread 'main' panicked", file=sys.stderr)
    raise SpecError(
        [ValidationIssue("too few", "add one", file="a.csv", line=3), ValidationIssue("too many")]
    )


class ExtensionError(SpecError):
    """An error that only an extension knows."""


def reject_as_an_extension() -> None:
    raise ExtensionError("of an extension")


def fail_platform() -> None:
    raise PlatformError("no service")


def break_down() -> None:
    raise KeyError("x")


def total(count: int) -> float:
    return sum(sandbox.ask({"item": item}) for item in range(count))


def path() -> list[str]:
    return sys.path


def priority() -> dict[str, int]:
    return {"nice": os.nice(0), "session": os.getsid(0), "process": os.getpid()}
