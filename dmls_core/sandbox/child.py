"""The child's side of the sandbox: set the limits, then answer calls or run another program."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

_LARGE_PART = 4
"""A child that has used 1/4 of its memory takes no further call: allocators do not return all of it."""

_PR_SET_PDEATHSIG = 1
"""Option of Linux's ``prctl``: the signal that the process gets when its parent dies."""

_answers: TextIO | None = None


def ask(question: object) -> Any:  # noqa: ANN401 - JSON
    """Ask the caller of the running function a question, JSON data, and return the reply (``Worker.call``).

    Raises:
        RuntimeError: the function does not run in a sandbox.
    """
    if _answers is None:
        raise RuntimeError("only a function that runs in a sandbox can ask its caller")
    _send({"ask": question})
    return json.loads(sys.stdin.readline())


def main(arguments: list[str]) -> None:
    """Set the limits, given as JSON, and run the program that follows; without one, answer calls."""
    settings = json.loads(arguments[0])
    if "parent" in settings:
        _end_with(settings["parent"], settings["signal"])
    if nice := settings.get("nice", 0):
        _lower_priority(nice)
    _limit_memory(settings["memory"], settings.get("stack", 0))
    if arguments[1:]:
        os.execvp(arguments[1], arguments[1:])  # noqa: S606 - no shell is wanted
    _serve(settings["memory"], settings["cpu_seconds"])


def _end_with(parent: int, number: int) -> None:
    """Make the kernel end this process when the thread that started it ends.

    The parent's id is an argument because process 1, in a container, may be a living parent.
    """
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        sys.exit("the process that started this one has ended")


def _lower_priority(nice: int) -> None:
    os.nice(nice)
    # Linux may schedule each session as one group, whose own niceness counts among the sessions.
    with suppress(OSError):
        os.setsid()
        Path("/proc/self/autogroup").write_text(str(nice), encoding="ascii")


def _limit_memory(memory: int, stack: int) -> None:
    import resource

    if stack:
        resource.setrlimit(resource.RLIMIT_STACK, (stack, resource.getrlimit(resource.RLIMIT_STACK)[1]))

    # RLIMIT_DATA counts what the process allocates, not the libraries that it maps.
    if memory:
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        allowed = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _serve(memory: int, cpu_seconds: int) -> None:
    """Answer calls until stdin ends, or until a call has used much memory."""
    import resource

    global _answers
    # stdout is only for answers: what libraries print goes to stderr.
    _answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _send({"ready": True})
    for line in iter(sys.stdin.readline, ""):
        call = json.loads(line)
        if cpu_seconds:
            used = resource.getrusage(resource.RUSAGE_SELF)
            hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
            limit = math.ceil(used.ru_utime + used.ru_stime + cpu_seconds)
            limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
            resource.setrlimit(resource.RLIMIT_CPU, (limit, hard))
        message = _call(call["call"], call["args"])
        last = "memory" in message or _uses_much(memory)
        _send(message | {"last": last})
        if last:
            return


def _uses_much(memory: int) -> bool:
    """Return whether a call has used a large part of the memory, in which libraries do not count."""
    from dmls_core.hardware import mapped_memory, peak_memory  # not before the limits are set

    return peak_memory() - mapped_memory() > memory // _LARGE_PART > 0


def _call(name: str, args: list[Any]) -> dict[str, Any]:
    from dmls_core.errors import DmlsError, UserError

    try:
        return {"answer": _import(name)(*args)}
    except UserError as error:
        issues = [issue.as_json() for issue in error.issues]
        return {"error": _error_name(error), "issues": issues}
    except DmlsError as error:
        return {"error": _error_name(error), "message": str(error)}
    except MemoryError:
        return {"memory": True}
    except Exception as error:  # noqa: BLE001 - the caller must hear of it
        import traceback

        traceback.print_exc()
        return {"error": "PlatformError", "message": f"{name}: {error!r}"}


def _error_name(error: Exception) -> str:
    """Return the name of an error's class, or of the nearest base of it, in ``dmls_core.errors``."""
    return next(one.__name__ for one in type(error).__mro__ if one.__module__ == "dmls_core.errors")


def _import(name: str) -> Callable[..., Any]:
    from importlib import import_module

    module, _, function = name.partition(":")
    target: Callable[..., Any] = getattr(import_module(module), function)
    return target


def _send(message: dict[str, Any]) -> None:
    if _answers:
        _answers.write(json.dumps(message) + "\n")
        _answers.flush()
