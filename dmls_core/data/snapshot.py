"""Snapshots of sources: rows of a database, or files of an object store, as one Parquet file."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from dmls_core.data.declared_types import check_types
from dmls_core.data.encoder import MISSING
from dmls_core.data.formats.base import is_parquet
from dmls_core.data.formats.conversion import convert
from dmls_core.data.formats.names import file_format
from dmls_core.data.formats.parquet_source import reading
from dmls_core.data.formats.source import FileSource
from dmls_core.data.table.columns import PADDED
from dmls_core.errors import DataError, ValidationIssue
from dmls_core.settings import DataLimits
from dmls_core.spec.data_table import Data

_SHOWN = 5
"""Columns that a message names."""


class SnapshotWriter:
    """Collects rows as parts on disk, and joins them to one Parquet file. Memory holds one part at a time."""

    def __init__(self, folder: Path, most: int) -> None:
        """Write the parts to an empty folder; ``most`` is the limit of rows."""
        self.rows = 0
        self._folder, self._most = folder, most
        self._parts: list[Path] = []

    def add(self, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Add rows of a database; raise ``DataError`` beyond the limit of rows."""
        self.rows += len(rows)
        check_rows(self.rows, self._most)
        path = self._folder / f"{len(self._parts)}.parquet"
        columns = zip(*rows, strict=True) if rows else [()] * len(names)
        pl.DataFrame(
            [_series(name, values) for name, values in zip(names, columns, strict=True)]
        ).write_parquet(path)
        self._parts.append(path)

    def finish(self, target: Path) -> None:
        """Write the Parquet file. A column has the type that holds the values of all parts."""
        _join([pl.scan_parquet(part, glob=False) for part in self._parts], target)


def check_rows(rows: int, most: int) -> None:
    """Raise ``DataError`` if a source has more than ``most`` rows; there may be more than ``rows``."""
    if rows > most:
        raise DataError(
            ValidationIssue(
                "the source has too many rows",
                found=f"more than {most:,}",
                expected=f"at most {most:,}",
                hint="select fewer, for example by a query with WHERE, or ask the platform team to raise "
                "DMLS_DATA_ROWS",
            )
        )


def _join(scans: Sequence[pl.LazyFrame], target: Path) -> None:
    """Write frames with the same columns to a Parquet file; the same rows give the same bytes."""
    schemas = [scan.collect_schema() for scan in scans]
    common = {name: _common({schema[name] for schema in schemas}) for name in schemas[0]}
    pl.concat(
        [scan.select(pl.col(name).cast(dtype) for name, dtype in common.items()) for scan in scans]
    ).sink_parquet(target, compression="zstd", maintain_order=True)


def write_snapshot(
    paths: list[str],
    partitions: list[dict[str, str]],
    options: dict[str, Any],
    used: list[str],
    target: str,
    addresses: list[str],
) -> int:
    """Join files to a Parquet file and return its number of rows; runs in the sandbox.

    ``partitions`` has the columns that the path of each file gives, ``options`` are ``[data]`` as JSON data.
    ``used`` are the columns that the snapshot has if they exist, none for all. Messages name the files by
    ``addresses``.

    Raises:
        DataError: a file is not what ``[data]`` says, or has other columns or types than the first one.
    """
    data, folder, limits = Data.model_validate(options), Path(target).parent, DataLimits.from_environment()
    scans, names, rows = [], [], 0
    declared: list[tuple[str, dict[str, pl.DataType]]] = []
    for at, (path, values) in enumerate(zip(map(Path, paths), partitions, strict=True)):
        converted = convert(path, data, folder / f"converted-{at}")
        if is_parquet(converted):
            with reading(converted):
                scan = pl.scan_parquet(converted, glob=False, hive_partitioning=False)
                declared.append((addresses[at], dict(scan.collect_schema())))
        else:
            source = file_format(path.name, data.format).open(converted, limits)
            scan = _typed(source, folder / f"{at}.parquet", data.not_missing)
        present = scan.collect_schema().names()
        scan = scan.with_columns(
            _partition(name, text) for name, text in values.items() if name not in present
        )
        names.append(scan.collect_schema().names())
        scans.append(scan)
    chosen = [name for name in names[0] if name in used] if used else names[0]
    for address, present in zip(addresses, names, strict=True):
        _check_names(address, present, chosen, others=() if used else present)
    check_types(declared, chosen)
    scans = [scan.select(chosen) for scan in scans]
    for path, scan in zip(map(Path, paths), scans, strict=True):
        with reading(path):
            rows += int(scan.select(pl.len()).collect(engine="streaming").item())
        check_rows(rows, limits.rows)
    with reading(Path(paths[0])):
        _join(scans, Path(target))
    return rows


def _check_names(file: str, names: Collection[str], chosen: Collection[str], others: Collection[str]) -> None:
    """Raise ``DataError`` unless a file has the chosen columns, and of ``others`` only those."""
    missing = [name for name in chosen if name not in names]
    more = [name for name in others if name not in chosen]
    if missing or more:
        parts = [
            f"{word} {_listed(names)}" for word, names in (("lacks", missing), ("has also", more)) if names
        ]
        raise DataError(
            ValidationIssue(
                f"its columns differ from those of the first file: it {' and '.join(parts)}",
                hint="write it again with these columns, or name those to read in [columns] features",
                file=file,
            )
        )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown


def _typed(source: FileSource, path: Path, not_missing: Collection[str]) -> pl.LazyFrame:
    """Return a file without types as a frame: whole numbers, numbers or text by all values of a column."""
    names = [name for name, _ in source.column_types]
    scan, rows = source.store(dict.fromkeys(names, pl.String()), path)
    # What is missing in a text depends on the spec: such a column stays as it is.
    missing = sorted(MISSING.difference(not_missing))
    stripped = {name: pl.col(name).str.strip_chars() for name in names}
    texts = {name: pl.when(~text.is_in(missing)).then(text) for name, text in stripped.items()}
    counts = [text.is_null().sum().alias(f"{at} null") for at, text in enumerate(texts.values())]
    for at, text in enumerate(texts.values()):
        # As a number, a code such as 02138 would lose its zeros before the spec can call it a category.
        plain = pl.when(~text.str.contains(PADDED)).then(text)
        counts += [
            plain.cast(dtype, strict=False).is_null().sum().alias(f"{at} {dtype}")
            for dtype in (pl.Int64, pl.Float64)
        ]
    counted = scan.select(counts).collect(engine="streaming").row(0, named=True)
    columns = []
    for at, (name, text) in enumerate(texts.items()):
        null = counted[f"{at} null"]
        number = next((dtype for dtype in (pl.Int64, pl.Float64) if counted[f"{at} {dtype}"] == null), None)
        values = pl.col(name) if number is None else text.cast(number)
        columns.append((values if null < rows else pl.lit(None, number)).alias(name))
    return scan.select(columns)


def _partition(name: str, text: str) -> pl.Expr:
    """Return the column of a folder such as ``year=2026``: a whole number if it is written as one."""
    value = int(text) if text == "0" or (text.isascii() and text.isdigit() and text[0] != "0") else text
    return pl.lit(None if text == "__HIVE_DEFAULT_PARTITION__" else value).alias(name)


def _series(name: str, values: Sequence[Any]) -> pl.Series:
    """Return a column of a database: as text if its values have several types, or one unknown to polars."""
    try:
        series = pl.Series(name, values)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        if all(value is None or isinstance(value, int | float) for value in values):
            return pl.Series(name, values, dtype=pl.Float64, strict=False)
        return _texts(name, values)
    if isinstance(series.dtype, pl.Decimal):
        return series.cast(pl.Float64)
    return _texts(name, values) if isinstance(series.dtype, pl.Object) else series


def _texts(name: str, values: Sequence[Any]) -> pl.Series:
    return pl.Series(name, [None if value is None else str(value) for value in values], dtype=pl.String)


def _common(dtypes: Collection[pl.DataType]) -> pl.DataType:
    """Return the type that holds the values of all these types."""
    types = {dtype for dtype in dtypes if dtype != pl.Null}
    if len(types) <= 1:
        return next(iter(types), pl.String())
    if all(dtype.is_integer() for dtype in types) and pl.UInt64 not in types:
        return pl.Int64()
    if all(dtype.is_numeric() for dtype in types):
        return pl.Float64()
    if all(isinstance(dtype, pl.Date | pl.Datetime) for dtype in types):
        return pl.Datetime("us")
    return pl.String()
