"""Convert files to what DMLS reads: its own CSV, or Parquet.

``[data]`` says how a file is written. Only ``Format.convert`` reads those keys: everything behind it sees
UTF-8, commas, decimal points and a header. A record stays in its line, so messages name that of the original.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from dmls_core.data.formats.damage import readable
from dmls_core.data.formats.names import file_format, format_of, needs_conversion
from dmls_core.errors import DataError
from dmls_core.spec.data_table import Data


def convert(path: Path, data: Data, folder: Path) -> Path:
    """Return a file as DMLS reads it: itself, or a new file of the same name in the empty ``folder``.

    Raises:
        DataError: the file is not what ``[data]`` says, with the line.
    """
    if not needs_conversion(path.name, data):
        return path
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / path.name
    with readable(path):
        file_format(path.name, data.format).convert(path, data, target)
    return target


def convert_all(paths: Sequence[str], options: dict[str, Any], folder: str) -> list[str]:
    """Convert files to subfolders of ``folder``, in a sandbox; ``options`` are ``[data]`` as JSON data."""
    data = Data.model_validate(options)
    return [str(convert(Path(path), data, Path(folder) / str(at))) for at, path in enumerate(paths)]


@contextmanager
def converted(paths: Sequence[Path], options: Mapping[str, Any]) -> Iterator[list[Path]]:
    """Convert files for the time of a block, whose ``DataError`` names the original files and lines.

    ``options`` are ``[data]`` as JSON data. A format that a file's name shows overrides that of ``[data]``.

    Raises:
        DataError: a file is not what ``[data]`` says.
    """
    data = Data.model_validate(options)
    with tempfile.TemporaryDirectory(prefix="dmls-data-") as folder:
        originals, plain = {}, []
        for at, path in enumerate(paths):
            named = format_of(path.name)
            copy = convert(
                path, data.model_copy(update={"format": None}) if named else data, Path(folder) / str(at)
            )
            originals[str(copy)] = str(path)
            plain.append(copy)
        try:
            with original_lines(paths[0].name, data):
                yield plain
        except DataError as error:
            issues = [replace(issue, file=originals.get(issue.file, issue.file)) for issue in error.issues]
            raise DataError(issues) from error


def line_shift(name: str, data: Data) -> int:
    """Return by how much a line of the converted file is larger than that of the original."""
    return int(not data.header or file_format(name, data.format).adds_header)


@contextmanager
def original_lines(name: str, data: Data) -> Iterator[None]:
    """Let a ``DataError`` about converted files, such as ``name``, name the lines of the originals."""
    try:
        yield
    except DataError as error:
        if not line_shift(name, data):
            raise
        raise DataError(
            [replace(issue, line=max(1, issue.line - 1) if issue.line else None) for issue in error.issues]
        ) from None
