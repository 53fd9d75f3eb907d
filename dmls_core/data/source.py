"""A file of data, whatever its format: its columns, their rough types, and the values of some of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import polars as pl

    from dmls_core.data.device import DeviceReader

Look = Literal["truth", "integer", "number", "time", "category", "text", "unusable"]
"""What a column's values look like; those of a CSV from its first rows."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Where a value stands.

    Attributes:
        line: the line of its record; None where the format has no lines.
        text: the value as the file spells it.
    """

    line: int | None
    text: str


class Source(ABC):
    """One file of data."""

    header_line: int | None = None
    """Line of the header; None where the format has no lines."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    @abstractmethod
    def looks(self) -> tuple[tuple[str, Look], ...]:
        """The columns in the order of the file, and what they look like."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns; one may come twice."""
        return tuple(name for name, _ in self.looks)

    @abstractmethod
    def read(self, types: Mapping[str, pl.DataType]) -> pl.DataFrame:
        """Read columns, in the order of ``types``.

        Args:
            types: what to read each column as: ``Float32`` or ``Float64`` for numbers, ``Categorical`` for
                text. A column of numbers comes back as ``String`` if it holds texts that are no numbers.

        Raises:
            DataError: the file is broken; each issue with its line.
        """

    def read_with(self, reader: DeviceReader, types: Mapping[str, pl.DataType]) -> pl.DataFrame:
        """Read columns as ``read`` does, on a device what of them is clean there."""
        found = self._on_device(reader, types)
        if found is None:
            return self.read(types)
        if left := {name: dtype for name, dtype in types.items() if name not in found.columns}:
            rest = self.read(left)
            if rest.height != found.height:
                return self.read(types)
            found = found.hstack(rest)
        return found.select(list(types))

    @abstractmethod
    def _on_device(self, reader: DeviceReader, types: Mapping[str, pl.DataType]) -> pl.DataFrame | None:
        """Return those columns that the reader could read; None for none."""

    @abstractmethod
    def integers(self, name: str) -> pl.Series | None:
        """Read a column as whole numbers of 64 bits; None if it holds anything else."""

    @abstractmethod
    def locate(self, cells: Collection[tuple[int, str]]) -> dict[tuple[int, str], Cell]:
        """Find where values stand, each given by its row (from 0, as ``read`` counts) and its column."""
