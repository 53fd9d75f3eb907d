"""Records from places spread over a whole text file: its beginning alone misleads if it is sorted."""

from __future__ import annotations

PLACES = 16
"""Places of a large text from which records are sampled, besides its beginning."""

CHUNK = 64 << 10
"""Bytes read at each place."""


def places(size: int, head: int) -> list[int]:
    """Return where to read in a text of ``size`` bytes of which the first ``head`` are read anyway."""
    step = max(1, (size - head) // PLACES)
    return [max(start, head) for start in range(head + step - CHUNK, size - CHUNK + 1, step)]


def whole_records(chunk: bytes) -> bytes:
    """Return the records of a chunk that begin and end in it.

    None if a record may contain line breaks in quotes: then the chunk may begin within one.
    """
    records = chunk[chunk.find(b"\n") + 1 : chunk.rfind(b"\n") + 1]
    return b"" if any(line.count(b'"') % 2 for line in records.splitlines()) else records


def join_chunks(content: bytes, head: int) -> bytes:
    """Return the records of a sample: the first ``head`` bytes of a text, then chunks from its places."""
    first = content[: content.rfind(b"\n", 0, head) + 1]
    chunks = (content[start : start + CHUNK] for start in range(head, len(content), CHUNK))
    return b"".join((first, *map(whole_records, chunks)))
