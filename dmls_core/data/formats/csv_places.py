"""The columns of places in a CSV, for messages."""

from __future__ import annotations

import codecs
import csv
from collections.abc import Sequence

RECORD = 64 * 2**20
"""Largest size of one record in bytes."""


def split_fields(record: str, delimiter: str = ",") -> list[str]:
    """Return the fields of a record."""
    # The limit is global, and other code may rely on it.
    limit = csv.field_size_limit(RECORD)
    try:
        return next(csv.reader([record], delimiter=delimiter), [])
    except csv.Error:  # a carriage return outside quotes
        return record.split(delimiter)
    finally:
        csv.field_size_limit(limit)


def column_at(names: Sequence[str], record: str, delimiter: str = ",") -> str:
    """Return the column in which a part of a record ends: the last one at most; empty without names."""
    at = len(split_fields(record, delimiter)) - 1
    return names[min(max(at, 0), len(names) - 1)] if names else ""


def ragged_column(names: Sequence[str], n_fields: int) -> str:
    """Return the first column without a field, or the last one, behind which there are others."""
    return names[min(n_fields, len(names) - 1)]


def column_of_byte(head: bytes, position: int) -> str:
    """Return the column of a byte in a text with commas; empty in its first line, which has the names."""
    end, start = head.find(b"\n"), head.rfind(b"\n", 0, position) + 1
    if not start:
        return ""
    first = head[:end].removeprefix(codecs.BOM_UTF8).rstrip(b"\r")
    names = split_fields(first.decode("utf-8", "backslashreplace"))
    return column_at(names, head[start:position].decode("utf-8", "replace")).strip()


def quoted_column(text: str, line: int) -> str:
    """Return the column of the last quotation mark in a line; empty in the header."""
    lines = text.split("\n", line)
    if line == 1 or len(lines) < line:
        return ""
    names = [name.strip() for name in split_fields(lines[0].rstrip("\r"))]
    return column_at(names, lines[line - 1].rpartition('"')[0])
