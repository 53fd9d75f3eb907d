"""The installed formats of data files, and which one a file has by its name."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from dmls_core import extensions
from dmls_core.data.formats.base import Format
from dmls_core.errors import PlatformError

if TYPE_CHECKING:
    from dmls_core.spec.data_table import Data

_GROUP: extensions.Group = "dmls.formats"

COMPRESSED = (".gz", ".zst", ".zip")

_STREAMS = (".gz", ".zst")

_PROSE = ".txt"
"""Ending of tables and of notes: it shows a table only if a folder has no other."""


@cache
def load_format(name: str) -> Format:
    """Return the format that is registered under a name.

    Raises:
        PlatformError: there is none, or its class is incomplete.
    """
    try:
        loaded = extensions.load(_GROUP, name)()
    except TypeError as error:
        raise PlatformError(f"extension {name!r} in {_GROUP!r}: {error}") from error
    if not isinstance(loaded, Format):
        raise PlatformError(f"extension {name!r} in {_GROUP!r} is not a subclass of Format")
    return loaded


@cache
def formats() -> tuple[Format, ...]:
    """Return the installed formats by name."""
    return tuple(load_format(name) for name in extensions.names(_GROUP))


@cache
def _by_suffix() -> dict[str, Format]:
    """Return the ending of a file's name -> its format; raise ``PlatformError`` if two formats have it."""
    by_suffix: dict[str, Format] = {}
    for one in formats():
        for suffix in one.suffixes:
            other = by_suffix.setdefault(suffix, one)
            if other is not one:
                raise PlatformError(
                    f"two formats have files that end in {suffix}: {other.name} and {one.name}; "
                    "uninstall the package of one of them"
                )
    return by_suffix


@cache
def plain_endings() -> tuple[str, ...]:
    """Return the endings of files that are read as they are."""
    return tuple(one.suffixes[0] for one in formats() if one.is_native)


@cache
def _text_endings() -> tuple[str, ...]:
    """Return the endings of text that is not compressed."""
    return tuple(suffix for one in formats() if one.is_text for suffix in one.suffixes)


@cache
def prose_endings() -> tuple[str, ...]:
    """Return the endings of tables and of notes: they show a table only if a folder has no other."""
    return (_PROSE, *(_PROSE + stream for stream in _STREAMS))


@cache
def converted_endings() -> tuple[str, ...]:
    """Return the endings of files that are converted first."""
    suffixes = [suffix for one in formats() for suffix in one.suffixes]
    text = [ending for ending in _text_endings() if ending != _PROSE]
    return (
        *(suffix for suffix in suffixes if suffix not in (*plain_endings(), _PROSE)),
        ".zip",
        *(ending + stream for ending in text for stream in _STREAMS),
    )


@cache
def data_endings() -> tuple[str, ...]:
    """Return the endings of all data files."""
    return (*plain_endings(), *converted_endings(), *prose_endings())


def is_data_name(name: str) -> bool:
    """Return whether a file is a data file by its name."""
    return name.lower().endswith(data_endings())


def is_plain_text(name: str) -> bool:
    """Return whether a file is text that is not compressed, by its name: its beginning is read alone."""
    return name.lower().endswith(_text_endings())


def usual_endings() -> str:
    """Return the usual ending of each format, for messages."""
    return ", ".join(one.suffixes[0] for one in formats())


def naming_hint(name: str) -> str:
    """Return the remedy for a file whose name is not that of a data file."""
    if name.lower().endswith((".ods", ".fods", ".numbers")):
        return "save the spreadsheet as .xlsx or CSV"
    if name.lower().endswith(".json"):
        return "write each row as an object in a line of its own, and name the file .jsonl"
    return f"its name must end in one of {', '.join(data_endings())}"


def format_of(name: str) -> str | None:
    """Return the format of a file by its name; None if the name does not show it."""
    path = Path(name.lower())
    if path.suffix not in COMPRESSED:
        one = _by_suffix().get(path.suffix)
        return one.name if one else None
    one = _by_suffix().get(path.with_suffix("").suffix)
    if one and one.is_text:
        return one.name
    return "csv" if path.suffix == ".zip" else None


def file_format(name: str, data_format: str | None = None) -> Format:
    """Return the format of a file by ``[data] format``, else by its name; CSV if neither shows it."""
    return load_format(data_format or format_of(name) or "csv")


def text_name(file: str) -> str:
    """Return the name of the text of a compressed file; without an extension, it is CSV."""
    name = file.rpartition(".")[0]
    return name if format_of(name) else f"{name}.csv"


def needs_conversion(name: str, data: Data) -> bool:
    """Return whether a file is something else than DMLS's CSV or Parquet, by its name and ``[data]``.

    So is one with marks of missing values that are not always read as such.
    """
    return bool(data.missing) or file_format(name, data.format).needs_conversion(name, data)
