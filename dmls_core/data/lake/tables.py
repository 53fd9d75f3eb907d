"""Delta Lake and Iceberg tables: find a version, and copy its rows to one Parquet file.

The functions run in the sandbox, because the files of a table are users' files. What they get is JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from dmls_core.data.lake.table_version import LakeTable, TableFile, TimeRange
from dmls_core.data.snapshot import check_rows
from dmls_core.errors import DataError, DmlsError, PlatformError, ValidationIssue
from dmls_core.settings import DataLimits

if TYPE_CHECKING:
    import pyarrow as pa

_GROUP_ROWS = 131_072
"""Rows of a row group in the copy."""

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class TableAddress:
    """Where a table is, and how to get there.

    Attributes:
        table_format: ``delta`` or ``iceberg``.
        name: the folder of a Delta table; the name of an Iceberg table in its catalog, or its metadata.
        options: deltalake's storage options, or the properties of pyiceberg's catalog; with secrets.
    """

    table_format: str
    name: str
    options: dict[str, str]

    def open(self, version: int | None, as_of: datetime | None = None) -> LakeTable:
        """Open a version: the given one, the one that was current before ``as_of``, or the newest.

        Raises:
            DataError: there is no such table or version.
            PlatformError: the table cannot be reached, or the library for it is missing.
        """
        with _reported(self.table_format):
            if self.table_format == "delta":
                from dmls_core.data.lake.delta import open_delta

                return open_delta(self.name, self.options, version, as_of)
            from dmls_core.data.lake.iceberg import open_iceberg

            return open_iceberg(self.name, self.options, version, as_of)


def find_version(
    table_format: str, name: str, options: dict[str, str], version: int | None, as_of: str | None
) -> dict[str, Any]:
    """Return ``version`` and ``identity`` of the table to read; arguments and errors of ``open``."""
    moment = datetime.fromisoformat(as_of) if as_of else None
    table = TableAddress(table_format, name, options).open(version, moment)
    return {"version": table.version, "identity": table.identity}


def copy_table(
    table_format: str,
    name: str,
    options: dict[str, str],
    version: int,
    used: list[str],
    times: dict[str, Any] | None,
    target: str,
    sample: bool = False,
) -> int:
    """Write the rows of a version to a Parquet file, and return their number.

    Args:
        table_format: with ``name`` and ``options`` the ``TableAddress``.
        name: see ``table_format``.
        options: see ``table_format``.
        version: the version or snapshot id.
        used: the columns that are copied; none for all.
        times: ``column``, ``between`` and ``timezone`` of the rows that are needed; None for all.
        target: the file to write.
        sample: whether the first rows suffice.

    Raises:
        DataError: the version has not the columns, too many rows, or a file that is broken or gone.
        PlatformError: the table cannot be reached.
    """
    import pyarrow as pa

    table = TableAddress(table_format, name, options).open(version)
    with _reported(table_format):
        table_schema = table.schema
        if missing := [column for column in used if column not in table_schema.names]:
            raise DataError(
                ValidationIssue(
                    f"the table has no column {missing[0]!r} at this version",
                    hint="name another version, or correct [columns]",
                    key="data.source",
                    found=", ".join(table_schema.names[:20]),
                )
            )
        needed = TimeRange.of(table_schema, **times) if times else None
        names = [column for column in table_schema.names if column in used] if used else table_schema.names
        schema = pa.schema([table_schema.field(column).remove_metadata() for column in names])
        read = list(dict.fromkeys([*names, *([needed.column] if needed else [])]))
        with _Writer(Path(target), schema) as writer:
            for file in table.files(read, needed):
                for batch in _rows(file):
                    rows = batch if needed is None else batch.filter(needed.mask(batch))
                    writer.add(rows.select(names))
                    if sample and writer.rows:
                        return writer.rows
    return writer.rows


class _Writer:
    """Writes batches as row groups of the same size, whatever the sizes of the batches."""

    def __init__(self, target: Path, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        self.rows = 0
        self._schema, self._waiting = schema, list[Any]()
        self._most = DataLimits.from_environment().rows
        self._file = pq.ParquetWriter(target, schema, compression="zstd")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: object, *_: object) -> None:
        if error_type is None:
            self._write(1)
        self._file.close()

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows; raise ``DataError`` beyond the limit of rows."""
        self.rows += batch.num_rows
        check_rows(self.rows, self._most)
        self._waiting.append(batch)
        if sum(waiting.num_rows for waiting in self._waiting) >= _GROUP_ROWS:
            self._write(_GROUP_ROWS)

    def _write(self, least: int) -> None:
        """Write the rows that wait, and keep less than ``least``."""
        import pyarrow as pa

        table = pa.Table.from_batches(self._waiting, self._schema)
        count = table.num_rows // least * least
        self._file.write_table(table.slice(0, count), row_group_size=_GROUP_ROWS)
        self._waiting = table.slice(count).to_batches()


def _rows(file: TableFile) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file; raise ``DataError`` if the file is broken, gone, or has other types."""
    import pyarrow as pa

    try:
        yield from file.read()
    except (pa.ArrowException, ValueError, OSError, TypeError, KeyError) as error:
        if file.exists():
            message = "a file of the table cannot be read with the columns of this version"
            cause = f"{file.name}: {_brief(error)}"
        else:
            message, cause = "a file of the table is gone", file.name
        raise DataError(
            ValidationIssue(
                message,
                hint="restore it, or name a version whose files are intact",
                key="data.source",
                found=cause,
            )
        ) from error


def _brief(error: BaseException) -> str:
    """Return an error's first line, and the last one, where deltalake has the cause."""
    text = _COLOURS.sub("", str(error)).strip() or type(error).__name__
    first, *others = [line.strip(" \t↳") for line in text.split("\n") if line.strip(" \t↳")]
    return ": ".join([first[:200], *(line[:200] for line in others[-1:])])


@contextmanager
def _reported(table_format: str) -> Iterator[None]:
    """Raise ``PlatformError`` for what a library raises: the sandbox logs other errors, secrets and all."""
    try:
        yield
    except DmlsError:
        raise
    except ImportError as error:
        raise PlatformError(
            f"a package for {table_format} tables is missing: install 'dmls[lake]' in Airflow's environment "
            f"({error})"
        ) from None
    except Exception as error:  # each store and catalog raises what its client does
        raise PlatformError(_brief(error)) from error
