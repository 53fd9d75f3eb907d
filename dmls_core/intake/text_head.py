"""Is the beginning of a file text at all? Binary files and other encodings are told apart."""

from __future__ import annotations

import codecs

from dmls_core.errors import DataError, ValidationIssue

_SIGNATURES = {
    b"PK\x03\x04": ("a zip archive or an Excel workbook", "save it as CSV, or unpack it"),
    b"\xd0\xcf\x11\xe0": ("an old Excel workbook", "save it as CSV"),
    b"\x1f\x8b": ("compressed by gzip", "unpack it"),
    b"BZh": ("compressed by bzip2", "unpack it"),
    b"\x28\xb5\x2f\xfd": ("compressed by zstd", "unpack it"),
    b"\xfd7zXZ": ("compressed by xz", "unpack it"),
    b"PAR1": ("Parquet", "give it the ending .parquet"),
    b"%PDF": ("a PDF document", "export the table as CSV"),
    b"SQLite format 3": ("an SQLite database", "export the table as CSV"),
    b"\x93NUMPY": ("a NumPy array", "save it as CSV with a header"),
    b"\x89HDF": ("an HDF5 file", "save it as CSV or Parquet"),
    codecs.BOM_UTF32_LE: ("encoded as UTF-32", "save it as UTF-8"),
    codecs.BOM_UTF32_BE: ("encoded as UTF-32", "save it as UTF-8"),
    codecs.BOM_UTF16_LE: ("encoded as UTF-16", "save it as UTF-8"),
    codecs.BOM_UTF16_BE: ("encoded as UTF-16", "save it as UTF-8"),
}

_CONTROL = bytes(range(9)) + bytes(range(14, 32))
_BINARY_SHARE = 0.02
"""Share of control characters from which a file is called binary."""


def decode_head(file: str, head: bytes, *, complete: bool) -> str:
    """Return the text of a file's beginning, without a byte order mark.

    Args:
        file: name for the messages.
        head: the first bytes; a character cut off at their end is left out.
        complete: whether they are the whole file.

    Raises:
        DataError: the file is empty, binary, not UTF-8, or uses line ends that are not read.
    """
    if not head.removeprefix(codecs.BOM_UTF8).strip():
        raise DataError(
            ValidationIssue("the file is empty", hint="drop it again with a header and rows", file=file)
        )
    for signature, (what, hint) in _SIGNATURES.items():
        if head.startswith(signature):
            raise DataError(
                ValidationIssue(f"the file is {what}, not CSV", hint=hint, file=file, expected="CSV text")
            )
    nul = head.find(b"\0")
    control = len(head) - len(head.translate(None, _CONTROL))
    if nul >= 0 or control > _BINARY_SHARE * len(head):
        where = f" (a NUL at byte {nul})" if nul >= 0 else ""
        raise DataError(
            ValidationIssue(
                f"the file is binary, not CSV{where}", hint="export the table as CSV in UTF-8", file=file
            )
        )
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(head, final=complete)
    except UnicodeDecodeError as error:
        raise DataError(_not_utf8(file, head, error.start)) from error
    if "\r" in text and "\n" not in text:
        raise DataError(
            ValidationIssue(
                "the lines end in a lone carriage return",
                hint="save it with Unix or Windows line ends",
                file=file,
            )
        )
    return text.removeprefix("\ufeff")


def _not_utf8(file: str, head: bytes, position: int) -> ValidationIssue:
    start = head.rfind(b"\n", 0, position) + 1
    shown = head[max(start, position - 20) : position + 20].split(b"\n")[0].decode("cp1252", "replace")
    return ValidationIssue(
        f"the file is not UTF-8: byte {position} is 0x{head[position]:02X}",
        hint=f"save it as UTF-8; read as Windows-1252 the place says {shown!r}",
        file=file,
        line=head.count(b"\n", 0, position) + 1,
        found=f"0x{head[position]:02X}",
        expected="UTF-8",
    )
