"""Read CSV files.

Values are first read as numbers. If that fails, the file is read again with the texts for missing values in
columns of numbers, then with those columns as text that have other texts. So one pass suffices for a clean
file, as most large ones are, and three for a file with one bad cell. Columns of text stay as they are: which
of them is missing depends on the spec.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path

import polars as pl

from dmls_core.data.encoder import MISSING
from dmls_core.data.formats.csv_dialect import Header, check_structure, find_records, read_header
from dmls_core.data.formats.source import (
    Aggregates,
    ColumnType,
    DeviceReader,
    FileSource,
    LocatedCell,
    as_frame,
    some_of,
    value_type,
)
from dmls_core.errors import DataError, ValidationIssue
from dmls_core.settings import DataLimits

_SAMPLE = 10_000
"""Rows from which a column's type is inferred."""

_WIDE_SAMPLE = 10_000_000
"""Cells from which the types of a wide table are inferred, but no fewer rows than ``_SAMPLE`` / 10."""

_GROUP_BYTES = 16 << 20
"""Size of a group of rows of a Parquet copy, as float32."""

_MISSING = sorted(MISSING)

_UNPARSED = re.compile(r"^conversion from `str` to .* failed in column '(c\d+)'")
"""The message of Polars about a text in a column of numbers."""

_TEXT_COLUMNS = 5
"""Columns of numbers with texts beyond which all columns are read as text."""

_BLOCK = 1 << 20


class CsvSource(FileSource):
    """One CSV file."""

    header_line = 1

    def __init__(self, path: Path, limits: DataLimits) -> None:
        """Read the header; raise ``DataError`` if this is not a valid CSV file."""
        super().__init__(path)
        self._header: Header = read_header(path, limits)

    @cached_property
    def column_types(self) -> tuple[tuple[str, ColumnType], ...]:
        """Return the columns and their types, inferred from the first rows."""
        rows = max(_SAMPLE // 10, min(_SAMPLE, _WIDE_SAMPLE // len(self._header.names)))
        try:
            sample = self._scan(infer_schema_length=rows, null_values=_MISSING).collect_schema().dtypes()
        except pl.exceptions.NoDataError:
            raise DataError(self._no_rows()) from None
        except pl.exceptions.PolarsError as error:
            raise self._broken(error) from None
        if len(sample) > len(self._header.names):
            raise self._broken(None)
        sample += [pl.String()] * (len(self._header.names) - len(sample))
        return tuple(
            (name, _column_type(dtype)) for name, dtype in zip(self._header.names, sample, strict=True)
        )

    def count_rows(self) -> int:
        """Count line breaks; see ``FileSource.count_rows``."""
        with self.path.open("rb") as file:
            breaks = sum(block.count(b"\n") for block in iter(lambda: file.read(_BLOCK), b""))
        return max(0, breaks + 1 - self._header.lines)

    def read(self, types: Mapping[str, pl.DataType]) -> pl.DataFrame:
        """Read columns; see ``FileSource.read``."""
        positions = self._positions(types)
        # Polars fills a record that is too short with nulls. Such a record lacks the last field, so the
        # records are checked one by one only if the last column has a null.
        last_is_null = self._last.is_null().alias("last is null")
        columns = [*(pl.col(f"c{position}") for position in positions), last_is_null]
        frame = self._collect(types, lambda _: columns)
        if frame.is_empty():
            raise DataError(self._no_rows())
        if frame.drop_in_place("last is null").any() and self._structure:
            raise DataError(self._structure)
        return frame.rename({f"c{position}": name for position, name in zip(positions, types, strict=True)})

    def aggregate(self, types: Mapping[str, pl.DataType], aggregates: Aggregates) -> pl.DataFrame:
        """Compute aggregates of columns; see ``FileSource.aggregate``."""
        columns = [f"c{position}" for position in self._positions(types)]

        def empty(names: Sequence[str]) -> pl.Expr:
            return pl.all_horizontal(pl.col(names).is_null()).sum().alias("empty")

        def select(schema: Mapping[str, pl.DataType]) -> list[pl.Expr]:
            return [
                *(
                    aggregate
                    for number, column in enumerate(columns)
                    for aggregate in aggregates(number, pl.col(column), schema[column])
                ),
                pl.len().alias("rows"),
                empty(some_of(columns)),
                self._last.is_null().any().alias("last is null"),
            ]

        frame = self._collect(types, select)
        if not frame["rows"].item():
            raise DataError(self._no_rows())
        if frame.drop_in_place("last is null").item() and self._structure:
            raise DataError(self._structure)
        if len(columns) > len(some_of(columns)) and frame["empty"].item():
            frame = frame.with_columns(self._collect(types, lambda _: [empty(columns)]))
        return frame

    def store(self, types: Mapping[str, pl.DataType], path: Path) -> tuple[pl.LazyFrame, int]:
        """Copy columns to a Parquet file; see ``FileSource.store``."""
        texts = {name: pl.String() if dtype == pl.Categorical else dtype for name, dtype in types.items()}
        names = {f"c{at}": name for at, name in zip(self._positions(types), types, strict=True)}

        copies: list[Path] = []

        def copy(scan: pl.LazyFrame) -> pl.DataFrame:
            # An attempt that failed may open and write its file later: each one has a file of its own.
            for failed in copies:
                failed.unlink(missing_ok=True)
            copies.append(path.with_name(f"{path.name}-{len(copies)}"))
            rows = max(_SAMPLE, _GROUP_BYTES // (4 * len(names)))
            scan.sink_parquet(copies[-1], row_group_size=rows, compression="lz4")
            counts = pl.len().alias("rows"), pl.col("last is null").any()
            return pl.scan_parquet(copies[-1], glob=False).select(counts).collect(engine="streaming")

        columns = [*map(pl.col, names), self._last.is_null().alias("last is null")]
        rows, ragged = self._collect(texts, lambda _: columns, copy).row(0)
        if not rows:
            raise DataError(self._no_rows())
        if ragged and self._structure:
            raise DataError(self._structure)
        return pl.scan_parquet(copies[-1], glob=False).select(list(names)).rename(names), rows

    @property
    def _last(self) -> pl.Expr:
        return pl.col(f"c{len(self._header.names) - 1}")

    def _positions(self, names: Iterable[str]) -> list[int]:
        first: dict[str, int] = {}
        for position, name in enumerate(self._header.names):
            first.setdefault(name, position)
        return [first[name] for name in names]

    def _on_device(self, reader: DeviceReader, types: Mapping[str, pl.DataType]) -> pl.DataFrame | None:
        positions = dict(zip(self._positions(types), types, strict=True))
        table = reader.csv(
            self.path,
            {position: value_type(types[name]) for position, name in positions.items()},
            header_lines=self._header.lines,
            columns=len(self._header.names),
        )
        if table is None:
            return None
        named = table.rename_columns([positions[int(position)] for position in table.column_names])
        return as_frame(named, types)

    def integers(self, name: str) -> pl.Series | None:
        """Read a column as integers; see ``FileSource.integers``."""
        position = self._header.names.index(name)
        schema: dict[str, pl.DataType] = {f"c{at}": pl.String() for at in range(len(self._header.names))}
        schema[f"c{position}"] = pl.Int64()
        try:
            scan = self._scan(schema=schema, null_values=_MISSING).select(f"c{position}")
            return scan.collect(engine="streaming").to_series()
        except pl.exceptions.PolarsError:
            return None

    def locate(self, cells: Collection[tuple[int, str]]) -> dict[tuple[int, str], LocatedCell]:
        """Return the lines of values; see ``FileSource.locate``."""
        records = find_records(self.path, self._header.lines, {row for row, _ in cells})
        located = {}
        for row, name in cells:
            position, fields = self._header.names.index(name), records[row].fields()
            located[row, name] = LocatedCell(
                records[row].line, fields[position] if position < len(fields) else ""
            )
        return located

    def copy_rows(self, mask: pl.Series, target: Path) -> int:
        """Write the header and the selected rows to a new file, and return the number of rows.

        ``mask`` is a mask of the rows, in the order of ``read``.
        """
        schema: dict[str, pl.DataType] = {f"c{at}": pl.String() for at in range(len(self._header.names))}
        with target.open("wb") as file:
            with self.path.open("rb") as source:
                file.writelines(islice(source, self._header.lines))
            self._scan(schema=schema).filter(mask).collect().write_csv(file, include_header=False)
        return int(mask.sum())

    def _collect(
        self,
        types: Mapping[str, pl.DataType],
        select: Callable[[Mapping[str, pl.DataType]], list[pl.Expr]],
        finish: Callable[[pl.LazyFrame], pl.DataFrame] = lambda scan: scan.collect(engine="streaming"),
    ) -> pl.DataFrame:
        schema: dict[str, pl.DataType] = {f"c{at}": pl.String() for at in range(len(self._header.names))}
        schema |= {
            f"c{position}": dtype
            for position, dtype in zip(self._positions(types), types.values(), strict=True)
        }
        try:
            return finish(self._scan(schema=schema).select(select(schema)))
        except pl.exceptions.PolarsError:
            pass
        for _ in range(_TEXT_COLUMNS):
            try:
                return finish(self._numbers(schema).select(select(schema)))
            except pl.exceptions.PolarsError as error:
                if self._structure:
                    raise DataError(self._structure) from None
                # Only the column that is no number becomes text: all of them take several times the memory.
                unparsed = _UNPARSED.search(str(error))
                if unparsed is None or not schema.get(unparsed[1], pl.String()).is_numeric():
                    break
                schema[unparsed[1]] = pl.String()
        schema = {name: pl.String() if dtype.is_numeric() else dtype for name, dtype in schema.items()}
        try:
            return finish(self._scan(schema=schema).select(select(schema)))
        except pl.exceptions.PolarsError as error:
            raise self._broken(error) from None

    def _numbers(self, schema: Mapping[str, pl.DataType]) -> pl.LazyFrame:
        """Scan the file with null for the texts of missing values in columns of numbers."""
        numbers = {name: dtype for name, dtype in schema.items() if dtype.is_numeric()}
        scan = self._scan(schema={**schema, **dict.fromkeys(numbers, pl.String())})
        return scan.with_columns(
            pl.when(~pl.col(name).is_in(_MISSING)).then(pl.col(name)).cast(dtype)
            for name, dtype in numbers.items()
        )

    def _scan(
        self,
        *,
        schema: dict[str, pl.DataType] | None = None,
        infer_schema_length: int | None = None,
        null_values: list[str] | None = None,
    ) -> pl.LazyFrame:
        return pl.scan_csv(
            self.path,
            has_header=False,
            skip_lines=self._header.lines,
            schema=schema,
            infer_schema_length=infer_schema_length,
            null_values=null_values,
            glob=False,
        )

    @cached_property
    def _structure(self) -> list[ValidationIssue]:
        return check_structure(self.path, self._header.lines, self._header.names)

    def _no_rows(self) -> ValidationIssue:
        return ValidationIssue(
            "the file has no rows below the header", file=self.path.name, line=1, expected="rows"
        )

    def _broken(self, error: Exception | None) -> DataError:
        reason = str(error).split("\n", 1)[0][:200] if error else "fields do not match the header"
        return DataError(
            self._structure
            or ValidationIssue("the file cannot be read as CSV", file=self.path.name, found=reason)
        )


def _column_type(dtype: pl.DataType) -> ColumnType:
    if dtype.is_integer():
        return "integer"
    if dtype.is_numeric():
        return "number"
    return "text"
