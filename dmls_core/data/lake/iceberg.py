"""Iceberg tables at one snapshot, by pyiceberg: from a catalog, or from the address of their metadata."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.data.lake.table_version import (
    BATCH_ROWS,
    TableFile,
    TimeRange,
    no_table,
    no_version,
    open_parquet,
)
from dmls_core.errors import DataError, PlatformError, ValidationIssue

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table


def open_iceberg(
    name: str, options: dict[str, str], version: int | None, as_of: datetime | None
) -> IcebergSnapshot:
    """Open a table; see ``TableAddress.open``."""
    table = _load(name, options)
    if version is not None:
        snapshot = table.snapshot_by_id(version)
        if snapshot is None:
            current = table.current_snapshot()
            raise no_version(
                f"no snapshot {version}",
                f"snapshot {current.snapshot_id} is the current one" if current else "it has no snapshot",
                "name a snapshot that has not expired, or none for the current one",
            )
    elif as_of is not None:
        snapshot = table.snapshot_as_of_timestamp(int(as_of.timestamp() * 1000), inclusive=False)
        if snapshot is None:
            history = table.history()
            first = datetime.fromtimestamp(history[0].timestamp_ms / 1000, UTC) if history else None
            raise no_version(
                f"no snapshot from before {as_of.astimezone(UTC):%Y-%m-%d %H:%M} UTC",
                f"the first one is of {first:%Y-%m-%d %H:%M} UTC" if first else "it has no snapshot",
                "run a later interval, or name the column with the time of a row: [columns] time",
            )
    else:
        snapshot = table.current_snapshot()
        if snapshot is None:
            hint = "upload the spec again when it has rows"
            raise no_version("no snapshot yet", name, hint)
    _check_stores(table, [snapshot.manifest_list])
    return IcebergSnapshot(table, snapshot.snapshot_id)


def _load(name: str, options: dict[str, str]) -> Table:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
    from requests.exceptions import ConnectionError as NoConnectionError

    try:
        if "://" in name:
            return _of_metadata(name, options)
        if not {"uri", "type", "py-catalog-impl"} & options.keys():
            raise PlatformError("its extra has no uri, the address of a catalog")
        # A catalog in a database is read only: pyiceberg would create its tables.
        properties = {"init_catalog_tables": "false"} | options
        return load_catalog(properties.pop("name", None), **properties).load_table(name)
    except (NoSuchTableError, NoSuchNamespaceError, FileNotFoundError) as error:
        raise no_table(name) from error
    except NoConnectionError as error:
        raise PlatformError(f"its catalog {options.get('uri')} does not answer") from error


def _of_metadata(address: str, options: dict[str, str]) -> Table:
    """Open a table by its metadata, without the properties there, which ``StaticTable.from_metadata`` uses.

    They can name a class to import, and an address that gets the credentials.
    """
    from pyiceberg.catalog.noop import NoopCatalog
    from pyiceberg.io import load_file_io
    from pyiceberg.serializers import FromInputFile
    from pyiceberg.table import StaticTable

    files = load_file_io(options, address)
    metadata = FromInputFile.table_metadata(files.new_input(address))
    return StaticTable((address,), metadata, address, files, NoopCatalog("static"))


def _check_stores(table: Table, addresses: Sequence[str]) -> None:
    """Raise ``DataError`` if metadata that users write names files outside the object store where it lies.

    They would be read with whatever credentials the worker has for the other store.
    """
    metadata_store = _store_of(table.metadata_location)
    for address in addresses:
        if _store_of(address) != metadata_store:
            raise DataError(
                ValidationIssue(
                    "the table names a file that is not in the object store of its metadata",
                    hint="write the table again",
                    key="data.source.iceberg",
                    found=address,
                )
            )


def _store_of(address: str) -> str:
    """Return the scheme of an address, one for all names of a store; ``file`` for a path."""
    scheme, separator, _ = address.partition("://")
    return _SAME.get(scheme, scheme) if separator else "file"


_SAME = {"s3a": "s3", "s3n": "s3", "abfs": "abfss", "wasb": "abfss", "wasbs": "abfss"}
"""Further schemes of a store."""


@dataclass(frozen=True)
class IcebergSnapshot:
    """An Iceberg table at one snapshot, whose id is ``version``."""

    table: Table
    version: int

    @property
    def identity(self) -> str:
        """Return the table's UUID."""
        return str(self.table.metadata.table_uuid)

    @cached_property
    def _columns(self) -> Schema:
        return self.table.scan(snapshot_id=self.version).projection()

    @cached_property
    def schema(self) -> pa.Schema:
        """Return the columns of this snapshot."""
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        return schema_to_pyarrow(self._columns, include_field_ids=False)

    def files(self, names: Sequence[str], times: TimeRange | None) -> list[TableFile]:
        """Return the files that may have rows in the range, sorted by address."""
        from pyiceberg.expressions import AlwaysTrue

        rows = self._filter(times) if times else AlwaysTrue()
        scan = self.table.scan(rows, tuple(names), snapshot_id=self.version)
        snapshot = scan.snapshot()
        if snapshot is None:
            raise PlatformError(f"the snapshot {self.version} is gone")
        _check_stores(self.table, [manifest.manifest_path for manifest in snapshot.manifests(self.table.io)])
        tasks = sorted(scan.plan_files(), key=lambda task: task.file.file_path)
        for task in tasks:
            _check_stores(self.table, [file.file_path for file in (task.file, *task.delete_files)])
        return [
            TableFile(
                task.file.file_path,
                partial(self._read, task, list(names), rows),
                partial(self._exists, task),
            )
            for task in tasks
        ]

    def _filter(self, times: TimeRange) -> BooleanExpression:
        from pyiceberg.expressions import And, GreaterThanOrEqual, LessThan, LessThanOrEqual
        from pyiceberg.types import DateType

        if isinstance(self._columns.find_type(times.column), DateType):
            first, last = (day.isoformat() for day in times.days)
            return And(
                GreaterThanOrEqual(term=times.column, value=first),
                LessThanOrEqual(term=times.column, value=last),
            )
        first, last = (moment.isoformat() for moment in (times.start, times.end))
        return And(
            GreaterThanOrEqual(term=times.column, value=first), LessThan(term=times.column, value=last)
        )

    def _read(
        self, task: FileScanTask, names: list[str], rows: BooleanExpression
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file that are not deleted; of Parquet, those of ``rows`` and others."""
        import pyarrow as pa
        from pyiceberg.io.pyarrow import ArrowScan
        from pyiceberg.manifest import FileFormat

        schema = pa.schema([self.schema.field(name) for name in names])
        columns = self._columns.select(*names)
        if task.file.file_format == FileFormat.PARQUET:
            batches = self._read_parquet(task, columns)
        else:
            batches = ArrowScan(self.table.metadata, self.table.io, columns, rows).to_record_batches([task])
        for batch in batches:
            arrays = [batch.column(field.name).cast(field.type) for field in schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _read_parquet(self, task: FileScanTask, columns: Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a Parquet file, some at a time; pyiceberg would hold those of the whole file."""
        from pyiceberg.io import pyarrow as arrow

        table = self.table.metadata
        older = table.format_version <= 2  # without nanoseconds
        deletes = arrow._read_all_delete_files(self.table.io, [task])  # noqa: SLF001 - nothing public
        deleted = _positions(deletes.get(task.file.file_path, ()))
        with self.table.io.new_input(task.file.file_path).open() as file:
            parquet = open_parquet(file)
            file_schema = arrow.pyarrow_to_schema(
                parquet.schema_arrow,
                table.name_mapping(),
                downcast_ns_timestamp_to_us=older,
                format_version=table.format_version,
            )
            constants = arrow._get_column_projection_values(  # noqa: SLF001 - nothing public
                task.file,
                columns,
                table.schema(),
                table.specs().get(task.file.spec_id),
                file_schema.field_ids,
            )
            ids = {field.field_id for field in columns.fields}
            names = [field.name for field in file_schema.fields if field.field_id in ids]
            end = 0
            for batch in parquet.iter_batches(BATCH_ROWS, columns=names):
                start, end = end, end + batch.num_rows
                low, high = np.searchsorted(deleted, (start, end))
                remaining = np.setdiff1d(np.arange(end - start), deleted[low:high] - start)
                yield arrow._to_requested_schema(  # noqa: SLF001 - nothing public maps a batch
                    columns,
                    file_schema,
                    batch.take(remaining) if low < high else batch,
                    downcast_ns_timestamp_to_us=older,
                    projected_missing_fields=constants,
                    allow_timestamp_tz_mismatch=True,
                )

    def _exists(self, task: FileScanTask) -> bool:
        files: list[Any] = [task.file, *task.delete_files]
        return all(self.table.io.new_input(file.file_path).exists() for file in files)


def _positions(deletes: Sequence[pa.ChunkedArray]) -> NDArray[np.int64]:
    """Return the positions that delete files name for a file, sorted."""
    return np.unique(np.concatenate([np.empty(0, np.int64), *map(np.asarray, deletes)]))
