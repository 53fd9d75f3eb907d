"""Thin a large file to rows from all over it, in one pass with limits of time and memory."""

from __future__ import annotations

import codecs
import io
import time
from pathlib import Path
from typing import IO, Any

from dmls_core.data.formats.compression import DAMAGED, most_bytes, unpacked
from dmls_core.data.formats.damage import readable
from dmls_core.data.formats.encodings import codec_of
from dmls_core.errors import DataError, ValidationIssue

CHUNKS = 16
"""Chunks of a large file that are sampled, besides its beginning: so many, or up to twice."""

CHUNK = 64 << 10
"""Bytes of a chunk."""

_BLOCK = 2 * CHUNK
_CLOCK = time.monotonic


def whole_records(chunk: bytes) -> bytes:
    """Return the records of a chunk that begin and end in it.

    It returns nothing if a record may contain line breaks in quotes: then the chunk may begin within one.
    """
    records = chunk[chunk.find(b"\n") + 1 : chunk.rfind(b"\n") + 1]
    return b"" if any(line.count(b'"') % 2 for line in records.splitlines()) else records


def whole_beginning(text: bytes, line_end: bytes = b"\n") -> bytes:
    """Return the beginning of a text, up to the end of its last record.

    A line break in quotes ends no record. Quotes that stay open for more than ``CHUNK`` bytes are an error of
    the text: then it ends with the last line.
    """
    if line_end not in text:
        return b""
    quote = line_end.replace(b"\n", b'"')
    last = end = text.rindex(line_end) + len(line_end)
    quotes = text.count(quote, 0, end)
    while quotes % 2 and last - end < CHUNK:
        before = text.rfind(line_end, 0, end - len(line_end))
        if before < 0:
            break
        start = before + len(line_end)
        quotes -= text.count(quote, start, end)
        end = start
    return text[: last if quotes % 2 else end]


def thin_text(path: str, encoding: str, target: str, head: int, seconds: float, cut: bool) -> dict[str, Any]:
    """Write records from all over a text, compressed or not, as UTF-8; runs in the sandbox.

    The first ``head`` bytes of the text come first. ``cut`` says that the file is only the beginning of a
    compressed one. The pass ends after ``seconds``.

    The result has ``parts`` (a line of ``target`` where a chunk begins, and that line in the text), ``lines``
    and ``bytes`` that were read, and ``complete`` (whether that is all).

    Raises:
        DataError: the file is damaged, in another encoding, or unpacks to too much.
    """
    source = Path(path)
    with readable(source):
        with unpacked(source) as file:
            codec = codec_of(encoding, file.read(2))
        sampler = _ChunkSampler(head, most_bytes(source))
        try:
            with unpacked(source) as file:
                complete = sampler.take(file, codec, _CLOCK() + seconds, cut)
        except UnicodeDecodeError as error:
            shown = error.object[max(0, error.start - 20) : error.start + 20].decode("cp1252", "replace")
            hint = "set [data] encoding to that of the file"
            raise DataError(
                ValidationIssue(
                    f"the text is not {encoding}", hint, file=source.name, line=sampler.lines + 1, found=shown
                )
            ) from None
    parts = sampler.write(Path(target))
    return {"parts": parts, "lines": sampler.lines, "bytes": sampler.size, "complete": complete}


class _ChunkSampler:
    """The beginning of a text, and chunks of it that are as far apart as its size so far allows."""

    def __init__(self, head: int, most: int) -> None:
        self._head, self._most = head, most
        self._start = bytearray()
        self._chunks: list[tuple[int, bytes]] = []
        self._step, self._blocks = 1, 0
        self.size = self.lines = 0

    def take(self, file: IO[bytes], codec: str, end: float, cut: bool) -> bool:
        """Read a text; return whether all of it was read before the time ``end``."""
        decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder(codec)(), translate=True)
        while _CLOCK() < end:
            try:
                block = _read(file, _BLOCK)
            except DAMAGED:
                if cut:
                    return False
                raise
            try:
                self._add(decoder.decode(block, final=not block and not cut).encode())
            except UnicodeDecodeError as error:
                self.lines += block.count(b"\n", 0, error.start)
                raise
            if not block:
                return not cut
        return False

    def _add(self, text: bytes) -> None:
        self.size += len(text)
        if self.size > self._most:
            raise OSError(f"the file unpacks to more than {self._most:,} bytes")
        if len(self._start) < self._head:
            self._start += text
        else:
            if self._blocks % self._step == 0 and (records := whole_records(text[:CHUNK])):
                self._chunks.append((self.lines + 2, records))
            self._blocks += 1
            if len(self._chunks) >= 2 * CHUNKS:
                self._chunks, self._step = self._chunks[::2], 2 * self._step
        self.lines += text.count(b"\n")

    def write(self, target: Path) -> list[tuple[int, int]]:
        """Write the records, and return the parts as ``thin_text`` does."""
        start = bytes(self._start)
        if self.size > len(start):
            start = whole_beginning(start)
        parts, line = [], start.count(b"\n") + 1
        with target.open("wb") as out:
            out.write(start)
            for at, records in self._chunks:
                out.write(records)
                parts.append((line, at))
                line += records.count(b"\n")
        return parts


def _read(file: IO[bytes], size: int) -> bytes:
    """Read so many bytes, unless the file ends."""
    parts = []
    while size and (part := file.read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def thin_parquet(path: Path, target: Path, rows: int, seconds: float) -> tuple[int, bool]:
    """Write about ``rows`` rows of a Parquet file: the first ones, and slices from all over it.

    Return the number of rows of the file, and whether all slices were read.
    """
    import polars as pl

    scan = pl.scan_parquet(path, glob=False)
    total, end = int(scan.select(pl.len()).collect().item()), _CLOCK() + seconds
    each = max(1, rows // (CHUNKS + 1))
    if total <= rows:
        scan.sink_parquet(target)
        return total, True
    frames: list[pl.DataFrame] = []
    for part in range(CHUNKS + 1):
        if frames and _CLOCK() > end:
            break
        frames.append(scan.slice(part * (total - each) // CHUNKS, each).collect(engine="streaming"))
    pl.concat(frames).write_parquet(target)
    return total, len(frames) == CHUNKS + 1


def span(sampled: dict[str, Any], size: int, cut: bool) -> str:
    """Return what ``thin_text`` has read of a file of ``size`` bytes, of which it had a part if ``cut``."""
    if sampled["complete"]:
        return f"lines 1 to {sampled['lines']:,}"
    if cut:
        return f"the first {size / 2**20:,.3g} MiB of the file"
    return f"the first {sampled['lines']:,} lines, those that were read in time"
