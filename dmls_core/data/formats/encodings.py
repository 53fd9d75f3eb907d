"""Detect the encoding of a text, with charset-normalizer where it is not Unicode, and write it as UTF-8."""

from __future__ import annotations

import codecs
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING

from dmls_core.data.formats.compression import most_bytes, unpacked
from dmls_core.errors import DataError, ValidationIssue

if TYPE_CHECKING:
    from dmls_core.spec.values import Encoding

_WESTERN: dict[str, Encoding] = {
    "cp1252": "windows-1252",
    "cp1250": "windows-1250",
    "iso8859_2": "iso-8859-2",
    "cp1254": "windows-1254",
    "cp850": "cp850",
}
"""Names in charset-normalizer -> encodings in which most letters of a word are those of ASCII."""

_OTHERS: dict[str, Encoding] = {
    "cp1251": "windows-1251",
    "koi8_r": "koi8-r",
    "cp1253": "windows-1253",
    "cp1255": "windows-1255",
    "cp1256": "windows-1256",
    "cp932": "cp932",
    "euc_jp": "euc-jp",
    "gb18030": "gb18030",
    "big5": "big5",
    "cp949": "cp949",
}

_CELL = re.compile(rb"[^\r\n\t,;|\"]*[\x80-\xff][^\r\n\t,;|\"]*")
_SYMBOL = re.compile(rb"(?<![A-Za-z\x80-\xff])[\x80\xa2-\xb9](?![A-Za-z\x80-\xff])")
"""A byte by itself: a symbol such as the euro sign or a degree, which says nothing about the letters."""

_CELLS = 2_000
"""Cells that are looked at: those with bytes beyond ASCII, which are few in a table of numbers."""

_THRESHOLD = 0.5
"""Largest mess that charset-normalizer may find; its default suits prose, and cells are short."""

_ALIKE = 0.01

_HEAD = 1 << 16


def is_utf16(head: bytes) -> bool:
    """Return whether a text is UTF-16: by its byte order mark, or since every second byte of ASCII is 0."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return True
    start = head[:1024]
    return len(start) > 3 and 0 not in start[::2] and 2 * start[1::2].count(0) > len(start[1::2])


def line_end_utf16(head: bytes) -> bytes:
    """Return the bytes of a line feed in a text of UTF-16."""
    return "\n".encode(utf16_codec(head))


def utf16_codec(head: bytes) -> str:
    """Return the codec of a text in UTF-16, and of parts of it, by its beginning."""
    return "utf-16-be" if head.startswith(codecs.BOM_UTF16_BE) else "utf-16-le"


def codec_of(encoding: str, head: bytes) -> str:
    """Return Python's codec for a text in ``encoding`` that begins with ``head``."""
    if encoding == "utf-8":
        return "utf-8-sig"
    marked = head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return "utf-16-le" if encoding == "utf-16" and not marked else encoding


def detect_encoding(head: bytes) -> Encoding:
    """Return the encoding of the beginning of a text; Windows-1252 if others are as likely."""
    if is_utf16(head):
        return "utf-16"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return _of_bytes(head)
    return "utf-8"


def _of_bytes(head: bytes) -> Encoding:
    from charset_normalizer import from_bytes

    cells: dict[bytes, None] = {}
    for cell in _CELL.finditer(head):
        cells[_SYMBOL.sub(b"", cell[0]).strip()] = None
        if len(cells) == _CELLS:
            break
    text = b"\n".join(cells)
    names = _OTHERS if _is_foreign(text) else _WESTERN
    matches = from_bytes(text, cp_isolation=list(names), threshold=_THRESHOLD)
    best = matches.best()
    if best is None or best.encoding not in names:  # too few letters
        return "windows-1252"
    likely = [match for match in matches if match.encoding in names]
    if names is _WESTERN:  # of a few short words, charset-normalizer takes K÷ln for one
        likely = [match for match in likely if not _symbol_in_word(str(match))] or likely
    best = likely[0]
    for match in likely:
        # Encodings that give the same text are one match.
        if "cp1252" in match.could_be_from_charset and names is _WESTERN:
            alike = match.chaos <= best.chaos + _ALIKE and match.coherence >= best.coherence - _ALIKE
            return "windows-1252" if alike else names[best.encoding]
    return names[best.encoding]


def _symbol_in_word(text: str) -> bool:
    """Return whether a symbol beyond ASCII is between two letters; an apostrophe may be."""
    triples = zip(text, text[1:], text[2:], strict=False)
    return any(
        not (char.isascii() or char.isalpha() or char == "\u2019") and before.isalpha() and after.isalpha()
        for before, char, after in triples
    )


def _is_foreign(text: bytes) -> bool:
    """Return whether words consist of bytes beyond ASCII, as those of other scripts do."""
    high = len(re.findall(rb"[\x80-\xff]", text))
    in_runs = sum(len(run) for run in re.findall(rb"[\x80-\xff]{2,}", text))
    letters = high + len(re.findall(rb"[A-Za-z]", text))
    return 2 * high > letters and 5 * in_runs > 3 * high


def write_utf8(path: Path, encoding: str, target: Path) -> None:
    """Write a text, which may be compressed, as UTF-8 with line feeds at the ends of lines.

    Raises:
        DataError: the text is not in ``encoding``, or unpacks to too much.
    """
    most, written = most_bytes(path), 0
    with unpacked(path) as file:
        head = file.read(_HEAD)
    name = codec_of(encoding, head)
    if encoding == "utf-16" and head and b"\0" not in head:  # any comma or line break would have one
        raise DataError(_undecodable(path, encoding))
    with unpacked(path) as file, target.open("w", encoding="utf-8", newline="\n") as out:
        text = io.TextIOWrapper(file, encoding=name, newline=None)
        try:
            while part := text.read(1 << 20):
                written += out.write(part)
                if written > most:
                    message = f"the file unpacks to more than {most:,} bytes"
                    raise DataError(ValidationIssue(message, file=path.name))
        except UnicodeError:
            raise DataError(_undecodable(path, encoding)) from None
        text.detach()


def _undecodable(path: Path, encoding: str) -> ValidationIssue:
    line, text = None, ""
    if encoding != "utf-16":  # its line ends have two bytes
        with unpacked(path) as file:
            for number, raw in enumerate(file, start=1):
                try:
                    raw.decode(encoding)
                except UnicodeError:
                    line, text = number, raw[:80].decode(encoding, "backslashreplace").strip()
                    break
    hint = "set [data] encoding to that of the file"
    return ValidationIssue(f"the text is not {encoding}", hint, file=path.name, line=line, found=text)
