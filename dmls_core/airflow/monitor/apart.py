"""Have users' files read in another process: a file that ends its reader ends no look at other jobs.

A few kilobytes may unfold to any size in memory, or nest so deep that the reader's stack overflows.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from dmls_core import sandbox
from dmls_core.errors import DataError, PlatformError, ValidationIssue
from dmls_core.hardware import parse_memory

MEMORY = 4 << 30
"""Bytes that the process may allocate at least."""

SECONDS = 900.0
"""Longest wait for an answer."""

Give = Callable[[Mapping[str, Any]], Any]
"""What the process asks for -> JSON data."""


class EndedError(DataError):
    """A file ended the process that read it."""


class Reader:
    """A process that reads files for one job after the other, started when there is something to read."""

    def __init__(self, memory: int = MEMORY) -> None:
        """Start nothing yet.

        Args:
            memory: bytes that the process may allocate, if that is more; for a job whose spec asks for more
                still, that.
        """
        self._memory = max(memory, MEMORY)
        self._process: subprocess.Popen[bytes] | None = None
        self._allowed = 0

    def close(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def ask(
        self,
        what: str,
        spec: Mapping[str, Any],
        file: str,
        give: Give = lambda _: None,
        /,
        **arguments: Any,
    ) -> Any:
        """Return what a method of ``Answerer`` returns.

        Args:
            what: the method.
            spec: the job's, as JSON.
            file: what is read, for messages.
            give: answers what the process asks back.
            arguments: of the method.

        Raises:
            EndedError: a file ended the process, or it took too long.
            DataError: a file cannot be read.
            PlatformError: no process can be started, or something else went wrong in it.
        """
        process = self._ready(max(self._memory, parse_memory(spec["resources"]["memory"] or "0")))
        said: Any = {"do": what, "with": arguments}
        try:
            while "wants" in (heard := _exchange(process, said)):
                said = give(heard["wants"])
        except EOFError:
            process.kill()
            raise EndedError(
                ValidationIssue(
                    "the file is damaged, nested too deep, or too large once it is unpacked",
                    hint="mend it; one that is in order may need a larger [resources] memory",
                    file=file,
                    found=f"its reader ended with code {process.wait()}",
                )
            ) from None
        except BaseException:
            self.close()
            raise
        if heard["last"]:
            self.close()
        if "issues" in heard:
            raise DataError([ValidationIssue(**issue) for issue in heard["issues"]])
        if "failed" in heard:
            raise PlatformError(heard["failed"])
        return heard["found"]

    def _ready(self, memory: int) -> subprocess.Popen[bytes]:
        """Return the process: another one if it has ended, or may allocate more or less than this."""
        if self._process is not None and self._process.poll() is None and self._allowed == memory:
            return self._process
        self.close()
        command = sandbox.command([sys.executable, "-P", "-m", f"{__package__}.reading"], memory)
        try:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as error:
            raise PlatformError(f"no process can be started that reads files: {error}") from error
        self._process, self._allowed = process, memory
        try:
            _listen(process)  # it is ready
        except EOFError:
            self.close()
            raise PlatformError(
                f"the process that reads files, which may take {memory:,} bytes, ended when it was started, "
                f"with code {process.returncode}"
            ) from None
        return process


def _exchange(process: subprocess.Popen[bytes], said: Any) -> Any:
    """Say a line, and return the one that comes back.

    Raises:
        EOFError: the process ended, or had to be ended since it took too long.
    """
    try:
        process.stdin.write(json.dumps(said).encode() + b"\n")  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
    except BrokenPipeError:
        raise EOFError from None
    return _listen(process)


def _listen(process: subprocess.Popen[bytes]) -> Any:
    """Return what the process says next.

    Raises:
        EOFError: it ended, or had to be ended since it took too long.
    """
    timer = threading.Timer(SECONDS, process.kill)
    timer.start()
    try:
        line = process.stdout.readline()  # type: ignore[union-attr]
    finally:
        timer.cancel()
    if not line.endswith(b"\n"):
        raise EOFError
    return json.loads(line)
