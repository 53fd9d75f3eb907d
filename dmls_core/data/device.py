"""Reading on a device: what the data layer asks of a reader, whoever provides it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    import polars as pl

Kind = Literal["float32", "float64", "str"]
"""What a column is read as."""


class DeviceReader(Protocol):
    """Reads columns faster than the CPU does; it may leave out any of them, and answer None."""

    def csv(self, path: Path, kinds: Mapping[int, Kind], *, header_lines: int, columns: int) -> Any:  # noqa: ANN401 - a pyarrow.Table
        """Read columns, given by their positions, from a CSV file of ``columns`` columns.

        Returns:
            A ``pyarrow.Table`` whose columns are named by their positions, or None.
        """
        ...

    def parquet(self, path: Path, kinds: Mapping[str, Kind]) -> Any:  # noqa: ANN401 - a pyarrow.Table
        """Read columns of a Parquet file.

        Returns:
            A ``pyarrow.Table``, or None.
        """
        ...


def kind_of(dtype: pl.DataType) -> Kind:
    """Return what a reader reads a column as that is wanted as ``dtype``."""
    import polars as pl

    if dtype == pl.Float32:
        return "float32"
    return "float64" if dtype == pl.Float64 else "str"


def as_frame(table: Any, types: Mapping[str, pl.DataType]) -> pl.DataFrame | None:  # noqa: ANN401 - as above
    """Return what a reader read as a frame of the wanted types; None if there is nothing in it."""
    import polars as pl

    if table is None or not table.num_columns or not table.num_rows:
        return None
    frame = pl.DataFrame(pl.from_arrow(table))
    return frame.cast({name: dtype for name, dtype in types.items() if name in frame.columns})
