"""Types that files declare, as Parquet does: which of them one column can have in several files."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import polars as pl

from dmls_core.errors import DataError, ValidationIssue


def check_types(files: Sequence[tuple[str, Mapping[str, pl.DataType]]], names: Collection[str]) -> None:
    """Raise ``DataError`` if a column has types in two files that no type holds, such as numbers and text.

    ``files`` are names and types of files. Numbers of all types are numbers, dates and times are times, and a
    column without values can have any type, as if pandas or Arrow concatenated the files.
    """
    issues = []
    for name in names:
        first: tuple[str, pl.DataType] | None = None
        for file, types in files:
            value_type = _value_type(types.get(name))
            if value_type is None:
                continue
            if first is None:
                first = file, types[name]
            elif value_type != _value_type(first[1]):
                issues.append(
                    ValidationIssue(
                        "the column has another type than in other files",
                        hint="write one of them again, so that the types agree",
                        file=file,
                        key=name,
                        found=str(types[name]),
                        expected=f"{first[1]}, as in {first[0]}",
                    )
                )
                break
    if issues:
        raise DataError(issues)


def distinct_names(paths: Sequence[Path]) -> list[str]:
    """Return the names of files, with folders if the names alone are the same."""
    names = [path.name for path in paths]
    if len(set(names)) == len(names):
        return names
    folder = os.path.commonpath(paths)
    return [str(path.relative_to(folder)) for path in paths]


def _value_type(dtype: pl.DataType | None) -> str | None:
    """Return what values are; None without values, and for nested types, which no column can have."""
    if dtype is None or dtype == pl.Null or dtype.is_nested():
        return None
    if dtype.is_numeric():
        return "number"
    if isinstance(dtype, pl.Date | pl.Datetime):
        return "time"
    if isinstance(dtype, pl.String | pl.Categorical | pl.Enum):
        return "text"
    return str(dtype)
