"""cuDF reads data files: what of them is clean, at a GPU's speed.

What cuDF makes of a wrong value in a CSV file is not what a user should train on: it takes some for missing,
and a record with too many fields for one without the rest. So a column of numbers is handed out only if it
has no gap, and a file only if no record of it is too long or too short; the caller reads the rest itself.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import cudf

if TYPE_CHECKING:
    import pyarrow as pa

Kind = Literal["float32", "float64", "str"]
"""What a column is read as."""

FAILURES = (ValueError, TypeError, OverflowError, RuntimeError, MemoryError)
"""What cuDF raises where it cannot read a file; the last two for a lack of memory on the GPU, too."""

log = logging.getLogger(__name__)


class CudfReader:
    """Reads columns of a file with cuDF."""

    def csv(
        self, path: Path, kinds: Mapping[int, Kind], *, header_lines: int, columns: int
    ) -> pa.Table | None:
        """Read columns of a CSV file.

        Args:
            path: the file.
            kinds: position of each column -> what to read it as.
            header_lines: lines above the first record.
            columns: fields of each record.

        Returns:
            Columns named by their positions (``"3"``); columns of numbers that have a gap are left out. None
            where the file is not as it should be, or cuDF cannot read it.
        """
        # One column more than there are must be empty, and the last one must not be: else a record is too
        # long or too short.
        probes = {columns - 1: "str", columns: "str"} | dict(kinds)
        try:
            frame = cudf.read_csv(
                str(path),
                header=None,
                skiprows=header_lines,
                names=[str(position) for position in range(columns + 1)],
                usecols=[str(position) for position in sorted(probes)],
                # Read in double precision and rounded: cuDF's own single precision may be a digit off.
                dtype={str(at): "str" if kind == "str" else "float64" for at, kind in probes.items()},
                # What stands for a missing value is told by the encoder's rules alone.
                keep_default_na=False,
                na_values=[""],
                skip_blank_lines=False,
            )
            if frame[str(columns)].notnull().any() or frame[str(columns - 1)].isnull().any():
                return None
            found = {str(position): _clean(frame[str(position)], kind) for position, kind in kinds.items()}
            kept = {name: column for name, column in found.items() if column is not None}
            return cudf.DataFrame(kept).to_arrow(preserve_index=False)
        except FAILURES as error:
            log.info("cuDF does not read %s: %s", path.name, error)
            return None

    def parquet(self, path: Path, kinds: Mapping[str, Kind]) -> pa.Table | None:
        """Read columns of a Parquet file.

        Args:
            path: the file.
            kinds: each column -> what to read it as.

        Returns:
            The columns by their names; None where cuDF cannot read the file.
        """
        try:
            frame = cudf.read_parquet(str(path), columns=list(kinds))
            typed = {name: frame[name].astype(kind) for name, kind in kinds.items() if kind != "str"}
            return frame.assign(**typed)[list(kinds)].to_arrow(preserve_index=False)
        except FAILURES as error:
            log.info("cuDF does not read %s: %s", path.name, error)
            return None


def _clean(column: cudf.Series, kind: Kind) -> cudf.Series | None:
    """Return a column as its kind; None for numbers with a gap: cuDF makes gaps of what is no number."""
    if kind == "str":
        return column
    # NaN is no null to cuDF, but unlike itself.
    if column.isnull().any() or (column != column).any():
        return None
    return column.astype(kind)
