"""Read users' files in a child process with limits on memory, CPU time and wall time.

A file of a few kilobytes may unpack to any size, or nest so deeply that the reader's stack overflows and a
native library ends its process. ``run`` calls a function in a child process, so that only the child ends; the
caller gets a ``SandboxError``. ``Worker`` keeps the child for further calls, ``start`` does not wait for the
answer, and ``command`` sets the memory limit for another program.

A child that is ended from outside, such as by Airflow with SIGTERM or by the kernel with SIGKILL, says
nothing about the file: that is a ``PlatformError``.

Arguments and answers are JSON; nothing is pickled. The child does not inherit the credentials in the
environment. It ends with the thread that started it, even if that is killed. What it prints, such as the
panic of a library in Rust before its exception, is logged only if the call fails for another reason than the
file.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Self, cast

from dmls_core import errors
from dmls_core.errors import DataError, DmlsError, PlatformError, UserError, ValidationIssue
from dmls_core.sandbox.child import ask

__all__ = ["Call", "Limits", "SandboxError", "Worker", "ask", "command", "run", "start"]

logger = logging.getLogger(__name__)

HINT = "the file is damaged, nested too deeply, or too large once unpacked"

START_SECONDS = 120.0
"""Time that a child has to start, which takes 0.2 s on an idle machine."""

_CRASHES = {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP}
"""Signals by which a process ends itself, or the kernel ends it for what it does."""

_NO_MEMORY = re.compile(
    rb"memory allocation of \d+ bytes failed|bad_alloc|out of memory|Cannot allocate memory"
)
"""What libraries print when they abort because they get no memory: Rust, C++, others."""

_PRINTED = 8 << 10
"""Bytes of a child's output that are logged."""

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
        UserError: the function raised it (the same class of ``dmls_core.errors``, with the same issues).
        PlatformError: the child cannot be started or was ended from outside, or the function raised any other
            exception.
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
        try:
            return child.answer(message, file, hint)
        finally:
            if message.get("last"):
                self.close()


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
            return self._child.answer(self._message, file, hint)
        except DmlsError as error:
            self._error = error
            raise
        finally:
            self._child.kill()

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
    arguments: Sequence[str],
    memory: int,
    python: str = sys.executable,
    *,
    detached: bool = False,
    stack: int = 0,
) -> list[str]:
    """Return a command line that runs a program, as a child of this process, with ``memory`` bytes at most.

    The interpreter ``python``, with DMLS installed, sets the limit. The program gets SIGTERM when the thread
    that started it ends, unless it is ``detached``. The stack of each thread, of which ``memory`` counts all
    that it may grow to, has ``stack`` bytes, or what is usual.
    """
    settings: dict[str, int] = {"memory": memory, "stack": stack}
    if not detached:
        settings |= {"parent": os.getpid(), "signal": int(signal.SIGTERM)}
    return [python, "-m", __name__, json.dumps(settings), *arguments]


class _Child:
    """The process and its two pipes; each message is one line of JSON."""

    def __init__(self, limits: Limits, log: Path | None = None) -> None:
        self.limits = limits
        self._ready = False
        self._timed_out = False
        self._logged = log is not None
        self._printed: IO[bytes] = log.open("w+b") if log else tempfile.TemporaryFile()  # noqa: SIM115
        self._before = 0
        settings = {"parent": os.getpid(), "signal": int(signal.SIGKILL)} | asdict(limits)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._printed,
                env=_environment(limits),
            )
        except OSError as error:
            self._printed.close()
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
        self._before = os.fstat(self._printed.fileno()).st_size
        with suppress(BrokenPipeError):  # ``receive`` reports the cause
            self._input.write(json.dumps(message).encode() + b"\n")
            self._input.flush()
            if last:
                self._input.close()

    def receive(self, seconds: float, file: str, hint: str) -> dict[str, Any]:
        """Return the next message.

        Raises ``SandboxError`` if the process crashes or takes longer than ``seconds``, and ``PlatformError``
        if it does not start, or another process ends it.
        """
        if not self._ready:
            self._ready = bool(self._read_line(START_SECONDS))
        if self._ready and (line := self._read_line(seconds)).endswith(b"\n"):
            message: dict[str, Any] = json.loads(line)
            return message
        code = self._process.wait()
        output = self._output_of_call()
        if not self._ready:
            late = f"did not start within {START_SECONDS:g} s"
            cause = late if self._timed_out else f"ended at its start with exit code {code}"
            raise self._failure(
                f"the process that reads files {cause}; its memory limit is {self.limits.memory:,} bytes"
            )
        if self._timed_out:
            raise _error(f"took longer than {seconds:g} s", file, hint)
        if code == -signal.SIGXCPU:
            raise _error(f"took more than {self.limits.cpu_seconds} s of CPU time", file, hint)
        if code < 0 and -code not in _CRASHES:
            kernel = ", which the kernel sends if the machine is out of memory" * (-code == signal.SIGKILL)
            raise self._failure(
                f"the process that read {file or 'a file'} was ended from outside by {_signal(-code)}"
                f"{kernel}: try again, since this says nothing about the file"
            )
        if _NO_MEMORY.search(output):
            raise self._memory_error(file, hint)
        logger.info("the process that read %s printed: %s", file, output.decode(errors="replace"))
        end = f"ended with exit code {code}" if code >= 0 else f"was ended by {_signal(-code)}"
        raise _error(end, file, hint)

    def answer(self, message: dict[str, Any], file: str, hint: str) -> Any:  # noqa: ANN401 - JSON
        """Return the answer of a call, or raise the function's error."""
        if "answer" in message:
            return message["answer"]
        if "memory" in message:
            raise self._memory_error(file, hint)
        error_type = getattr(errors, message["error"])
        if issubclass(error_type, UserError):
            raise error_type([ValidationIssue(**issue) for issue in message["issues"]])
        raise self._failure(message["message"], error_type)

    def kill(self) -> None:
        self._process.kill()
        for pipe in (self._input, self._output):
            with suppress(BrokenPipeError):
                pipe.close()
        self._process.wait()
        self._printed.close()

    def _read_line(self, seconds: float) -> bytes:
        timer = threading.Timer(seconds, self._time_out) if seconds else None
        if timer:
            timer.start()
        try:
            return self._output.readline()
        finally:
            if timer:
                timer.cancel()

    def _time_out(self) -> None:
        self._timed_out = True
        self._process.kill()

    def _output_of_call(self) -> bytes:
        """Return the end of what the child has printed since the last message was sent to it."""
        size = os.fstat(self._printed.fileno()).st_size
        start = max(self._before, size - _PRINTED)
        return os.pread(self._printed.fileno(), size - start, start)

    def _failure(self, message: str, error_type: type[DmlsError] = PlatformError) -> DmlsError:
        """Return an error that is not the file's; log what the child has printed."""
        if not self._logged and (output := self._output_of_call().strip()):
            logger.error("%s\n%s", message, output.decode(errors="replace"))
        return error_type(message)

    def _memory_error(self, file: str, hint: str) -> SandboxError:
        memory = self.limits.memory
        limit = f"more than {memory:,} bytes of memory" if memory else "more memory than there is"
        return _error(f"needed {limit}", file, hint)


def _signal(number: int) -> str:
    names = {one.value: one.name for one in signal.Signals}
    return names.get(number, f"signal {number}")


def _error(cause: str, file: str, hint: str) -> SandboxError:
    end = f"the process that read it {cause}"
    return SandboxError(ValidationIssue("the file cannot be read", hint, file=file, found=end))


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
