"""Turn what readers raise on damaged files into one message that names the file.

A parser, or a library below it, raises anything on damaged bytes: ``zlib.error``, ``struct.error``,
``NotImplementedError``, or the panic of a library in Rust, which is no ``Exception``.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path

from dmls_core.errors import DataError, DmlsError, PlatformError, ValidationIssue

_MACHINE = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.EROFS}
"""Error numbers of the operating system that say nothing about a file's content, such as a full disk."""

_STDERR = 2

_OF_RUST = re.compile(r"\(os error (\d+)\)")


_panics_are_hidden = ContextVar("panics_are_hidden", default=False)


@contextmanager
def hidden_panics() -> Iterator[None]:
    """Leave out what a library in Rust prints on its panic while ``readable`` reads a file.

    For commands: the error that follows says all of it. A process that is ended while it reads a file loses
    what other libraries printed meanwhile, which the sandbox, for example, needs.
    """
    token = _panics_are_hidden.set(True)
    try:
        yield
    finally:
        _panics_are_hidden.reset(token)


@contextmanager
def _held_back() -> Iterator[None]:
    """Hold back what is written to standard error, by any library; leave it out on a panic."""
    panicked = False
    with tempfile.TemporaryFile() as held:
        sys.stderr.flush()
        original = os.dup(_STDERR)
        os.dup2(held.fileno(), _STDERR)
        try:
            yield
        except BaseException as error:
            panicked = _is_panic(error)
            raise
        finally:
            sys.stderr.flush()
            os.dup2(original, _STDERR)
            os.close(original)
            held.seek(0)
            if not panicked:
                with open(_STDERR, "wb", closefd=False) as shown:
                    shutil.copyfileobj(held, shown)


def _is_panic(error: BaseException) -> bool:
    return type(error).__name__ == "PanicException"  # each library in Rust has a class of its own


@contextmanager
def readable(
    path: Path,
    message: str = "the file cannot be read",
    hint: str = "it is damaged or incomplete: upload it again",
) -> Iterator[None]:
    """Raise ``DataError`` that names the file for whatever its reader raises.

    Raises:
        DataError: the file is damaged, or what the reader itself says of it.
        PlatformError: the machine failed, not the file: the disk is full, for example.
        MemoryError: the reader needs more memory than it may take.
    """
    try:
        with _held_back() if _panics_are_hidden.get() else nullcontext():
            yield
    except DataError as error:  # of a copy, which may have another name
        raise DataError([replace(issue, file=path.name) for issue in error.issues]) from error
    except (DmlsError, MemoryError):
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and not _is_panic(error):
            raise
        reason = str(error).split("\n", 1)[0][:200]
        if (number := _error_number(error)) in _MACHINE:
            raise PlatformError(f"cannot read {path.name}: {os.strerror(number)}") from error
        cause = reason or type(error).__name__
        raise DataError(ValidationIssue(message, hint, file=path.name, found=cause)) from error


def _error_number(error: BaseException) -> int:
    """Return the error number of the operating system, also in the text of a library in Rust; else 0."""
    in_text = _OF_RUST.search(str(error))
    return getattr(error, "errno", None) or (int(in_text[1]) if in_text else 0)
