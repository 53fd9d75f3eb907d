"""Read users' files in a child process with limits on memory, CPU time and wall time.

A file of a few kilobytes may unpack to any size, or nest so deeply that the reader's stack overflows and a
native library ends its process. ``run`` calls a function in a child process, so that only the child ends; the
caller gets a ``SandboxError``. ``Worker`` keeps the child for further calls, ``start`` does not wait for the
answer, and ``command`` sets the memory limit for another program.

Arguments and answers are JSON; nothing is pickled. The child does not inherit the credentials in the
environment. It ends with the thread that started it, even if that is killed.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Self, cast

from dmls_core import errors
from dmls_core.errors import DataError, DmlsError, PlatformError, UserError, ValidationIssue
from dmls_core.sandbox.child import ask

__all__ = ["Call", "Limits", "SandboxError", "Worker", "ask", "command", "run", "start"]

HINT = "the file is damaged, nested too deeply, or too large once unpacked"

_PRIVATE = re.compile(
    r"^(AIRFLOW|AWS_|AZURE_|GOOGLE_|DMLS_(?!DATA_|INTAKE_|SPEC_|SERVING_)|GE_|GX_|MLFLOW_|PG)"
    r"|PASSWORD|SECRET|TOKEN|CREDENTIAL|PRIVATE_KEY",
    re.IGNORECASE,
)
"""Variables that the child does not inherit."""


class SandboxError(DataError):
    """A file crashed the process that read it, or exceeded its limits."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one call.

    Attributes:
        memory: bytes that the process may allocate, without the libraries that it maps; 0 for no limit.
        seconds: wall time; 0 for no limit.
        cpu_seconds: CPU time of all threads together; 0 for no limit.
        threads: threads of polars and OpenMP, each of which needs memory for its stack; 0 for one per CPU.
        nice: added to the process's niceness.
    """

    memory: int = 1 << 30
    seconds: float = 60.0
    cpu_seconds: int = 60
    threads: int = 1
    nice: int = 0


def run(
    function: Callable[..., Any],
    /,
    *args: object,
    limits: Limits | None = None,
    file: str = "",
    hint: str = HINT,
) -> Any:  # noqa: ANN401 - JSON
    """Call a function in a child process and return its answer as JSON data.

    The function must be at module level: the child imports its module by name. Its arguments are JSON data.
    ``file`` is the name of the file that it reads, for messages; ``hint`` is that of a ``SandboxError``.

    Raises:
        SandboxError: the child crashed, ran too long or needed too much memory.
        UserError: the function raised it (the same subclass, with the same issues).
        PlatformError: the child cannot be started, or the function raised any other exception.
    """
    with Worker(limits) as worker:
        return worker.call(function, *args, file=file, hint=hint)


class Worker:
    """A child process that serves several calls. Use it from one thread.

    The child starts with the first call. A new one replaces it if it has ended, if a call has other limits,
    or if a call has used so much memory that too little may be left.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._child: _Child | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child process, if one is running."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()

    def call(
        self,
        function: Callable[..., Any],
        /,
        *args: object,
        limits: Limits | None = None,
        file: str = "",
        hint: str = HINT,
        reply: Callable[[Any], Any] | None = None,
    ) -> Any:  # noqa: ANN401 - JSON
        """Call a function in the child process; see ``run``.

        ``limits`` replace the worker's; ``reply`` answers the function's calls of ``sandbox.ask``.
        """
        limits = limits or self.limits
        if self._child is None or self._child.limits != limits or self._child.returncode is not None:
            self.close()
            self._child = _Child(limits)
        child = self._child
        answered = False
        try:
            child.send({"call": _name(function), "args": args})
            while "ask" in (message := child.receive(limits.seconds, file, hint)):
                if reply is None:
                    raise PlatformError(f"{_name(function)} asks for data and the caller gives none")
                child.send(reply(message["ask"]))
            answered = True
        finally:
            if not answered:
                self.close()
        if message.get("last"):
            self.close()
        return _answer(message, limits, file, hint)


class Call:
    """A running call; see ``start``."""

    def __init__(self, child: _Child) -> None:
        self._child = child
        self._message: dict[str, Any] = {}
        self._error: DmlsError | None = None

    @property
    def pid(self) -> int:
        """Return the process id of the child."""
        return self._child.pid

    @property
    def finished(self) -> bool:
        """Return whether the child has ended, with or without an answer."""
        return self._child.returncode is not None

    def result(self, timeout: float | None = None, *, file: str = "", hint: str = HINT) -> Any:  # noqa: ANN401 - JSON
        """Wait for the answer, at most ``timeout`` seconds; raises as ``run`` does, again at each call."""
        if self._error is not None:
            raise self._error
        seconds = self._child.limits.seconds if timeout is None else timeout
        try:
            self._message = self._message or self._child.receive(seconds, file, hint)
        except DmlsError as error:
            self._error = error
            raise
        finally:
            self._child.kill()
        return _answer(self._message, self._child.limits, file, hint)

    def kill(self) -> None:
        """End the child process, if it is still running."""
        self._child.kill()


def start(
    function: Callable[..., Any], /, *args: object, limits: Limits | None = None, log: Path | None = None
) -> Call:
    """Start a call in a child process and return at once; the child's output goes to ``log``.

    The answer waits in a pipe of 64 KiB: a function with more to return should write a file.

    Raises:
        PlatformError: the child cannot be started.
    """
    child = _Child(limits or Limits(), log)
    child.send({"call": _name(function), "args": args}, last=True)
    return Call(child)


def command(
    arguments: Sequence[str], memory: int, python: str = sys.executable, *, detached: bool = False
) -> list[str]:
    """Return a command line that runs a program, as a child of this process, with ``memory`` bytes at most.

    The interpreter ``python``, with DMLS installed, sets the limit. The program gets SIGTERM when the thread
    that started it ends, unless it is ``detached``.
    """
    settings: dict[str, int] = {"memory": memory}
    if not detached:
        settings |= {"parent": os.getpid(), "signal": int(signal.SIGTERM)}
    return [python, "-m", __name__, json.dumps(settings), *arguments]


class _Child:
    """The process and its two pipes; each message is one line of JSON."""

    def __init__(self, limits: Limits, log: Path | None = None) -> None:
        self.limits = limits
        self._ready = False
        self._timed_out = False
        settings = {"parent": os.getpid(), "signal": int(signal.SIGKILL)} | asdict(limits)
        with ExitStack() as files:
            stderr = files.enter_context(log.open("wb")) if log else None
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", __name__, json.dumps(settings)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    env=_environment(limits),
                )
            except OSError as error:
                raise PlatformError(f"cannot start a process to read files: {error}") from error
        self._input = cast("IO[bytes]", self._process.stdin)
        self._output = cast("IO[bytes]", self._process.stdout)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    def send(self, message: object, *, last: bool = False) -> None:
        with suppress(BrokenPipeError):  # ``receive`` reports the cause
            self._input.write(json.dumps(message).encode() + b"\n")
            self._input.flush()
            if last:
                self._input.close()

    def receive(self, seconds: float, file: str, hint: str) -> dict[str, Any]:
        """Return the next message.

        Raises ``SandboxError`` if the process ends or takes longer than ``seconds``, and ``PlatformError`` if
        it ends before it is ready.
        """
        timer = threading.Timer(seconds, self._time_out) if seconds else None
        if timer:
            timer.start()
        try:
            if not self._ready:
                self._ready = bool(self._output.readline())
            line = self._output.readline()
        finally:
            if timer:
                timer.cancel()
        if line.endswith(b"\n"):
            message: dict[str, Any] = json.loads(line)
            return message
        code = self._process.wait()
        if not self._ready and not self._timed_out:
            raise PlatformError(
                f"the process that reads files ended at its start with exit code {code}; "
                f"its memory limit is {self.limits.memory:,} bytes"
            )
        raise _error(f"took longer than {seconds:g} s" if self._timed_out else self._cause(code), file, hint)

    def kill(self) -> None:
        self._process.kill()
        for pipe in (self._input, self._output):
            with suppress(BrokenPipeError):
                pipe.close()
        self._process.wait()

    def _time_out(self) -> None:
        self._timed_out = True
        self._process.kill()

    def _cause(self, code: int) -> str:
        if code >= 0:
            return f"ended with exit code {code}"
        if -code == signal.SIGXCPU:
            return f"took more than {self.limits.cpu_seconds} s of CPU time"
        return f"was ended by {signal.Signals(-code).name}"


def _error(cause: str, file: str, hint: str) -> SandboxError:
    end = f"the process that read it {cause}"
    return SandboxError(ValidationIssue("the file cannot be read", hint, file=file, found=end))


def _answer(message: dict[str, Any], limits: Limits, file: str, hint: str) -> Any:  # noqa: ANN401 - JSON
    """Return the answer of a call, or raise the function's error."""
    if "answer" in message:
        return message["answer"]
    if "memory" in message:
        limit = (
            f"more than {limits.memory:,} bytes of memory" if limits.memory else "more memory than there is"
        )
        raise _error(f"needed {limit}", file, hint)
    error_type = getattr(errors, message["error"], PlatformError)
    if issubclass(error_type, UserError):
        raise error_type([ValidationIssue(**issue) for issue in message["issues"]])
    raise (error_type if issubclass(error_type, DmlsError) else PlatformError)(message["message"])


def _name(function: Callable[..., Any]) -> str:
    """Return ``module:function``, by which the child finds the function; raise ``TypeError`` if it cannot."""
    module, name = function.__module__, function.__qualname__
    if module == "__main__" or getattr(sys.modules.get(module), name, None) is not function:
        raise TypeError(f"{module}.{name} is not a function at the top level of an importable module")
    return f"{module}:{name}"


def _environment(limits: Limits) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if not _PRIVATE.search(name)}
    # The folder of this package, not the working directory, which may contain other modules.
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    threads = str(limits.threads)
    libraries = {"OMP_NUM_THREADS": threads, "POLARS_MAX_THREADS": threads} if limits.threads else {}
    return environment | libraries | {"PYTHONPATH": os.pathsep.join(paths)}
