"""Write the folders in which SeaweedFS changes objects to a file, which ``dmls_core.store.s3_changes`` reads.

SeaweedFS asks its database for each folder of a listing: at 10,000 jobs, one every few seconds keeps half a
core busy. Its program ``weed filer.meta.tail`` prints each change at once instead.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

from dmls_core.devstack.private_files import write_private
from dmls_core.devstack.programs import find_program

log = logging.getLogger(__name__)

PAUSE = 5.0
"""Seconds until the server is followed again after it ended the connection."""

START_SECONDS = 2.0

OVERLAP = "5s"
"""How far back the first changes lie, so that none is missed while the program starts."""

LONGEST = 4 << 20
"""Size in bytes at which the file is replaced."""


def follow(filer: str, folder: str, prefix: str, file: Path) -> None:
    """Write the changed folders below ``folder`` of the filer to ``file`` until the process is ended.

    ``filer`` is its address as SeaweedFS writes it, ``host:port.grpcport``; ``prefix`` is the beginning of
    ``folder`` that is not part of a key.
    """
    command = [find_program("weed"), "-logtostderr", "filer.meta.tail", f"-filer={filer}"]
    command += [f"-pathPrefix={folder}", f"-timeAgo={OVERLAP}"]
    while True:
        try:
            _follow_once(command, prefix, file)
        except Exception:
            # It must go on, whatever the program prints or a disk raises.
            log.exception("the changes of the S3 server cannot be followed; trying again")
        time.sleep(PAUSE)


def _follow_once(command: list[str], prefix: str, file: Path) -> None:
    """Follow the server until it ends the connection, or the file cannot be written."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as program:
        try:
            if program.stdout is None or _ended_early(program):
                return
            write_private(file, f"{uuid4().hex}\n")
            events = Events()
            while file.stat().st_size < LONGEST:
                readable, _, _ = select.select([program.stdout], [], [], 1.0)
                if readable:
                    if not (text := os.read(program.stdout.fileno(), 1 << 20)):
                        return
                    folders = {found.removeprefix(prefix) for found in events.folders(text)}
                    with file.open("a") as lines:
                        lines.writelines(json.dumps(found) + "\n" for found in sorted(folders))
                os.utime(file)
        finally:
            program.kill()


def _ended_early(program: subprocess.Popen[bytes]) -> bool:
    """Return whether the program ends soon, as it does after a second while the server is down."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        program.wait(START_SECONDS)
    return program.poll() is not None


class Events:
    """Reads what ``weed filer.meta.tail`` prints: one indented JSON object after the other."""

    def __init__(self) -> None:
        self._rest = b""

    def folders(self, text: bytes) -> Iterator[str]:
        """Yield the folder of each changed file, with a slash, in the events that ``text`` completes.

        Raises:
            ValueError, KeyError: this is not an event.
        """
        *events, self._rest = (self._rest + text).split(b"\n}\n")
        for event in events:
            content = json.loads(event + b"\n}")
            change = content["eventNotification"]
            for entry, folder in (
                (change["oldEntry"], content["directory"]),
                (change["newEntry"], change["newParentPath"]),
            ):
                if entry and not entry["isDirectory"] and not entry["name"].startswith("_status."):
                    yield f"{folder}/"
