"""Private files and folders, readable only by the owner of the state."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dmls_core.errors import PlatformError


def make_private_folder(folder: Path) -> Path:
    """Create ``folder`` and its parents with mode 700, or set that mode, and return it."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
    except OSError as error:
        raise PlatformError(f"cannot create the folder {folder}: {error.strerror}") from error
    return folder


def write_private(file: Path, text: str) -> bool:
    """Write ``text`` atomically with mode 600; return whether the file changed."""
    if file.is_file() and file.read_text() == text:
        file.chmod(0o600)
        return False
    part = file.with_name(f".{file.name}.{os.getpid()}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(file)
    return True


def write_private_json(file: Path, content: object) -> bool:
    """Write ``content`` as JSON with mode 600; return whether the file changed."""
    return write_private(file, json.dumps(content, indent=1, sort_keys=True) + "\n")


def read_json(file: Path) -> dict[str, Any] | None:
    """Return the JSON object in ``file``, ``None`` without a file; other content raises ``PlatformError``."""
    try:
        content = json.loads(file.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise PlatformError(f"{file} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise PlatformError(f"{file} does not hold a JSON object")
    return content


@contextlib.contextmanager
def exclusive(file: Path, seconds: float) -> Iterator[None]:
    """Hold the lock ``file``, released at the process's end; raise ``PlatformError`` after ``seconds``."""
    with file.open("a") as stream:
        file.chmod(0o600)
        end = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise PlatformError(
                        f"another `dmls up` or `dmls down` has held {file} for {seconds:.0f} s"
                    ) from None
                time.sleep(0.1)
        yield
