"""Read a sample of a Parquet file, or the columns alone from its end."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmls_core.data.formats.csv_dialect import CsvRow
from dmls_core.data.formats.parquet_footer import MARK
from dmls_core.data.formats.parquet_source import reading
from dmls_core.data.formats.thinning import thin_parquet
from dmls_core.errors import DataError, ValidationIssue
from dmls_core.intake.csv_check import check_names
from dmls_core.intake.schema_inference.draft import FIRST
from dmls_core.intake.schema_inference.sampled_rows import ROWS, Sample, unfit_names
from dmls_core.settings import IntakeLimits

if TYPE_CHECKING:
    import polars as pl

SECONDS = 20.0
"""Time after which no more rows of a large file are read."""

IN_TIME = "the part of it that could be read in time"


def parquet_tail(file: str, tail: bytes, size: int, *, limits: IntakeLimits | None = None) -> Sample:
    """Read columns, types and number of rows from ``tail``, the end of a Parquet file of ``size`` bytes.

    Raises ``DataError`` if it is not the end of a Parquet file, or shorter than the file's footer.
    """
    limits = limits or IntakeLimits.from_environment()
    if not tail.endswith(MARK):
        raise not_parquet(file, tail)
    if int.from_bytes(tail[-8:-4], "little") + 8 > len(tail):
        raise DataError(ValidationIssue("its footer is too long to be read", file=file))
    if size > limits.data_bytes:
        raise DataError(
            ValidationIssue(
                "the data is too large", file=file, expected=f"at most {limits.data_bytes:,} bytes"
            )
        )
    with _sparse(tail, size) as path:
        return read_parquet(file, path, limits, 0)


@contextmanager
def _sparse(tail: bytes, size: int) -> Iterator[Path]:
    """Write the end of a file at its offset in one that is as large on disk as this end."""
    with tempfile.NamedTemporaryFile(suffix=".parquet") as sparse:
        sparse.seek(max(0, size - len(tail)))
        sparse.write(tail)
        sparse.flush()
        yield Path(sparse.name)


def write_rows(path: str, target: str) -> tuple[int, int]:
    """Write rows from all over a Parquet file to ``target``; return the file's number of rows, and theirs.

    Runs in the sandbox.
    """
    import polars as pl

    with reading(Path(path)):
        total, _ = thin_parquet(Path(path), Path(target), ROWS, SECONDS)
        return total, int(pl.scan_parquet(target, glob=False).select(pl.len()).collect().item())


def parquet_columns(path: str, file: str, size: int) -> list[str]:
    """Return the columns of a Parquet file of ``size`` bytes, or of the end of one; called in the sandbox."""
    content = Path(path).read_bytes()
    if len(content) < size:
        return list(parquet_tail(file, content, size).names)
    if not content.startswith(MARK):
        raise not_parquet(file, content)
    return list(read_parquet(file, Path(path), IntakeLimits.from_environment(), 0).names)


def read_parquet(file: str, source: io.BytesIO | Path, limits: IntakeLimits, rows: int) -> Sample:
    """Read up to so many rows; with 0, only columns and types."""
    import polars as pl

    with reading(Path(file)):
        schema = pl.read_parquet_schema(source)
        if issues := [
            *check_names(file, CsvRow(1, list(schema)), limits.columns),
            *unfit_names(file, schema),
        ]:
            raise DataError([replace(issue, line=None) for issue in issues])
        scan = pl.scan_parquet(source, glob=False)
        total = int(scan.select(pl.len()).collect().item())
        frame = pl.DataFrame(schema=schema)
        if rows:
            step = max(1, (total - FIRST) // (rows - FIRST))
            others = scan.slice(FIRST).gather_every(step).head(rows - FIRST)
            frame = pl.concat([scan.head(FIRST), others]).collect()
        columns = tuple(_values(frame[name]) for name in schema)
    if not total:
        raise DataError(ValidationIssue("the file has no rows", "upload it again with its rows", file=file))
    return Sample(tuple(schema), columns, frame.height == total, total, tuple(map(str, schema.values())))


def _values(series: pl.Series) -> Sequence[Any]:
    """Return a column as Python values; None for nested ones."""
    if series.dtype.is_nested():
        return [None] * len(series)
    return series.to_list()


def not_parquet(file: str, content: bytes) -> DataError:
    """Return the error of a file that begins, or ends, with other bytes than Parquet."""
    return DataError(
        ValidationIssue(
            "the file is empty" if not content else "the file is not Parquet",
            hint="correct its extension, or write it again",
            file=file,
            found=repr(content[:4]),
            expected=repr(MARK),
        )
    )
