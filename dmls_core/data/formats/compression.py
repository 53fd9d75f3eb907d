"""Open files that are compressed with gzip or zstd, or packed into a zip archive."""

from __future__ import annotations

import gzip
import sys
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import IO, cast

from dmls_core.errors import DataError, ValidationIssue

GZIP, ZIP, ZSTD = b"\x1f\x8b", b"PK\x03\x04", b"\x28\xb5\x2f\xfd"
"""First bytes of compressed files."""

WORKBOOKS = (ZIP, b"\xd0\xcf\x11\xe0")
"""First bytes of Excel workbooks; those of today are archives."""

RATIO, SMALLEST = 250, 256 << 20
"""A file may unpack to this many times its size, and always to ``SMALLEST`` bytes: tables hold no more."""

UNPACKED = 1 << 20
"""Bytes to which the beginning of a compressed file is unpacked."""

DAMAGED = (
    *(OSError, EOFError, zlib.error, zipfile.BadZipFile),
    RuntimeError,  # an encrypted archive, or one with an unknown compression
)
"""What damaged files raise."""


def load_zstd() -> ModuleType:
    """Import the module of zstd, which Python has from 3.14 on."""
    return import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")


def most_bytes(path: Path) -> int:
    """Return the bytes to which a file may unpack."""
    return max(SMALLEST, RATIO * path.stat().st_size)


@contextmanager
def unpacked(path: Path) -> Iterator[IO[bytes]]:
    """Open a file, whether compressed or not, by its first bytes; an archive must have one file."""
    with path.open("rb") as file:
        start = file.read(4)
        file.seek(0)
        if start.startswith(GZIP):
            yield cast("IO[bytes]", gzip.GzipFile(fileobj=file))
        elif start == ZSTD:
            zstd = load_zstd()
            try:
                yield zstd.ZstdFile(file)
            except zstd.ZstdError as error:
                raise OSError(str(error)) from error
        elif start == ZIP:
            with (
                zipfile.ZipFile(file) as archive,
                archive.open(only_member(archive, path.name)) as member,
            ):
                check_packed(path.name, cast("zipfile.ZipExtFile", member).peek(4))
                yield member
        else:
            yield file


def only_member(archive: zipfile.ZipFile, file: str) -> str:
    """Return the only file of an archive, without what macOS adds; raise ``DataError`` if it has several."""
    names = [
        name for name in archive.namelist() if not name.startswith("__MACOSX/") and not name.endswith("/")
    ]
    if len(names) != 1:
        hint = "pack one table, or upload the files themselves"
        raise DataError(
            ValidationIssue("the archive must have one file", hint, file=file, found=", ".join(names[:10]))
        )
    return names[0]


def check_packed(file: str, head: bytes) -> None:
    """Raise ``DataError`` if ``head``, the unpacked beginning of an archive, is that of a workbook."""
    if file.lower().endswith(".zip") and head.startswith(WORKBOOKS):
        raise DataError(
            ValidationIssue(
                "the archive has a workbook or another archive, not text",
                hint="upload the workbook itself: it is compressed already",
                file=file,
            )
        )


def unpack_head(head: bytes) -> bytes:
    """Return the beginning of the content of a compressed file."""
    if head.startswith(GZIP):
        with suppress(zlib.error):
            return zlib.decompressobj(31).decompress(head, UNPACKED)
    if head.startswith(ZSTD):
        zstd = load_zstd()
        with suppress(zstd.ZstdError):
            content: bytes = zstd.ZstdDecompressor().decompress(head, UNPACKED)
            return content
    while head.startswith(ZIP) and len(head) > 30:
        at = 30 + int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
        if head[30 : 30 + int.from_bytes(head[26:28], "little")].endswith(b"/"):  # a folder
            head = head[at + int.from_bytes(head[18:22], "little") :]
            continue
        if head[8:10] == b"\0\0":  # stored
            return head[at : at + int.from_bytes(head[18:22], "little")]
        with suppress(zlib.error):
            return zlib.decompressobj(-15).decompress(head[at:], UNPACKED)
        break
    return head
