"""Records from chunks spread over a whole text file: its beginning alone misleads if it is sorted."""

from __future__ import annotations

from dmls_core.data.formats.encodings import is_utf16, utf16_codec
from dmls_core.data.formats.thinning import CHUNK, CHUNKS, whole_beginning, whole_records


def chunk_starts(size: int, head: int) -> list[int]:
    """Return where to read in a text of ``size`` bytes of which the first ``head`` are read anyway."""
    step = max(1, (size - head) // CHUNKS)
    # Even numbers: a character of UTF-16 has two bytes.
    return [max(start, head) & ~1 for start in range(head + step - CHUNK, size - CHUNK + 1, step)]


def _as_utf8(part: bytes, head: bytes) -> bytes:
    """Return a part of a text in UTF-16, from an even byte on, as UTF-8; one of another text as it is."""
    return part.decode(utf16_codec(head), "replace").encode() if is_utf16(head) else part


def join_chunks(content: bytes, head: int) -> bytes:
    """Return the records of a sample: the first ``head`` bytes of a text, then chunks of it.

    A text in UTF-16 becomes UTF-8.
    """
    first = _as_utf8(content[:head], content)
    chunks = (_as_utf8(content[start : start + CHUNK], content) for start in range(head, len(content), CHUNK))
    return b"".join((whole_beginning(first), *map(whole_records, chunks)))
