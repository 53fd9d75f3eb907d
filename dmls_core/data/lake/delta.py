"""Delta Lake tables at one version: deltalake reads the log, pyarrow the files that it lists."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from dmls_core.data.lake.table_version import (
    BATCH_ROWS,
    TableFile,
    TimeRange,
    no_table,
    no_version,
    open_parquet,
)
from dmls_core.errors import DataError, ValidationIssue

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyarrow.fs import FileSystem

_NO_VERSION = re.compile(
    r"end version \d+ not the same as the specified|invalid (table )?version", re.IGNORECASE
)
"""What deltalake says if the log has no such version."""

_MAPPING = "delta.columnMapping.mode"

_PARTITION = "partition."
"""Precedes the names of partition columns in a list of files."""


def open_delta(
    folder: str, options: dict[str, str], version: int | None, as_of: datetime | None
) -> DeltaVersion:
    """Open a table; see ``TableAddress.open``."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        table = DeltaTable(folder, version=version, storage_options=options)
        if as_of is not None and version is None:
            _go_back(table, as_of)
    except TableNotFoundError as error:
        raise no_table(folder) from error
    except DeltaError as error:
        if version is None or not _NO_VERSION.search(str(error)):
            raise
        newest = DeltaTable(folder, storage_options=options).version()
        raise no_version(
            f"no version {version}",
            f"version {newest} is the newest",
            "name a version that its history still has, or none for the newest",
        ) from error
    if (mapping := table.metadata().configuration.get(_MAPPING, "none")) != "none":
        raise DataError(
            ValidationIssue(
                "the table maps its columns to other names in its files, which DMLS does not read",
                hint=f"write a copy without {_MAPPING}",
                key="data.source.delta",
                found=f"{_MAPPING} = {mapping}",
            )
        )
    return DeltaVersion(table, options)


def _go_back(table: DeltaTable, as_of: datetime) -> None:
    """Load the version that was current before a moment; raise ``DataError`` if there was none."""
    table.load_as_version(as_of)
    # Before the first version deltalake loads the first one.
    history = table.history(1)
    if history and history[0]["timestamp"] > as_of.timestamp() * 1000:
        first = datetime.fromtimestamp(history[0]["timestamp"] / 1000, UTC)
        raise no_version(
            f"no version from before {as_of.astimezone(UTC):%Y-%m-%d %H:%M} UTC",
            f"version {table.version()} of {first:%Y-%m-%d %H:%M} UTC",
            "run a later interval, or name the column with the time of a row: [columns] time",
        )


@dataclass(frozen=True)
class DeltaVersion:
    """A Delta table at one version."""

    table: DeltaTable
    options: dict[str, str]

    @property
    def version(self) -> int:
        """Return the version's number."""
        return self.table.version()

    @property
    def identity(self) -> str:
        """Return the id in the table's log."""
        return str(self.table.metadata().id)

    @cached_property
    def schema(self) -> pa.Schema:
        """Return the columns of this version."""
        import pyarrow as pa

        return pa.schema(self.table.schema())

    @cached_property
    def _store(self) -> FileSystem:
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import PyFileSystem

        return PyFileSystem(DeltaStorageHandler(self.table.table_uri, self.options))

    def files(self, names: Sequence[str], times: TimeRange | None) -> list[TableFile]:
        """Return the files that may have rows in the range, sorted by name."""
        import pyarrow as pa

        chosen = self._chosen(times) if times else None
        actions = pa.table(self.table.get_add_actions(flatten=True))
        listed = [name for name in actions.column_names if name == "path" or name.startswith(_PARTITION)]
        masks = self._deletions()
        table_files = []
        for action in actions.select(listed).to_pylist():
            path = unquote(action.pop("path"))
            if chosen is not None and self._key(path) not in chosen:
                continue
            values = {name.removeprefix(_PARTITION): value for name, value in action.items()}
            read = partial(self._read, path, list(names), values, masks.get(self._key(path)))
            table_files.append(TableFile(path, read, partial(self._exists, path)))
        return sorted(table_files, key=lambda file: file.name)

    def _chosen(self, times: TimeRange) -> set[str]:
        """Return the keys of the files that may have rows in the range, by the statistics in the log."""
        import pyarrow as pa

        start: date = times.start
        end: date = times.end
        operator = "<"
        if pa.types.is_date(self.schema.field(times.column).type):
            (start, end), operator = times.days, "<="
        uris = self.table.file_uris(
            file_pruning_predicate=[(times.column, ">=", start), (times.column, operator, end)]
        )
        return {self._key(uri) for uri in uris}

    def _key(self, name: str) -> str:
        """Return what the addresses and paths of a file have in common: escaped once, twice or never."""
        root = self.table.table_uri.removeprefix("file://").rstrip("/") + "/"
        return unquote(unquote(name.removeprefix("file://").removeprefix(root)))

    def _deletions(self) -> dict[str, list[bool]]:
        """Return which rows of a file are not deleted, by the file's key, where some are."""
        import pyarrow as pa

        if "deletionVectors" not in (self.table.protocol().reader_features or ()):
            return {}
        vectors = pa.RecordBatchReader.from_stream(self.table.deletion_vectors()).read_all()
        return {self._key(row["filepath"]): row["selection_vector"] for row in vectors.to_pylist()}

    def _read(
        self, path: str, names: list[str], values: dict[str, Any], mask: list[bool] | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file; a column that it lacks was added to the table later, and is null."""
        import pyarrow as pa

        schema = pa.schema([self.schema.field(name) for name in names])
        with self._store.open_input_file(path) as file:
            parquet = open_parquet(file)
            stored_names = [
                name for name in names if name in parquet.schema_arrow.names and name not in values
            ]
            start = 0
            # Without a column, a batch still has its number of rows.
            for batch in parquet.iter_batches(BATCH_ROWS, columns=stored_names):
                columns = [
                    batch.column(field.name).cast(field.type)
                    if field.name in stored_names
                    else pa.repeat(pa.scalar(values.get(field.name), field.type), batch.num_rows)
                    for field in schema
                ]
                rows = pa.RecordBatch.from_arrays(columns, schema=schema)
                if mask is not None:
                    selected = mask[start : start + batch.num_rows]
                    rows = rows.filter(pa.array(selected + [True] * (batch.num_rows - len(selected))))
                start += batch.num_rows
                yield rows

    def _exists(self, path: str) -> bool:
        try:
            with self._store.open_input_file(path) as file:
                file.read(1)
        except FileNotFoundError:
            return False
        return True
