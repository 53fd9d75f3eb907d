"""The memory that a run needs at least, by the size of its table. A run that cannot fit is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dmls_core.data.formats.data_files import DataFiles
from dmls_core.data.table.reader import assign_roles
from dmls_core.errors import DataError, ValidationIssue
from dmls_core.settings import DataLimits
from dmls_core.spec import Spec

_TRAINER = 190 << 20
"""Memory of a trainer's interpreter and libraries that no file backs (``tests/bench/plan_memory.py``)."""

MATRICES = 2.5
"""Memory of loading a table, in sizes of its float32 matrix."""

STORED, STORED_ROW = 128 << 20, 45
"""Memory of a table that is read from disk: blocks of it, and for each row. XGBoost keeps gradients and
predictions of the rows, a run their targets and row numbers."""

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class TableSize:
    """Rows and features of a table before it is read."""

    rows: int
    features: int
    text_bytes: int = 0
    """Size of the CSV files."""

    @property
    def matrix_bytes(self) -> int:
        """Return the size of the float32 matrix."""
        return 4 * self.rows * self.features

    @property
    def least_memory(self) -> int:
        """Return the bytes that a trainer needs at least: libraries, and the matrix or parts of it."""
        return _TRAINER + min(int(MATRICES * self.matrix_bytes), STORED + STORED_ROW * self.rows)


def measure_table(paths: Sequence[Path], spec: Spec) -> TableSize:
    """Return the size of a table; the records of CSV files are counted by their line breaks.

    Raises:
        DataError: a file cannot be read, or lacks a column.
    """
    files = DataFiles(paths, spec.data.format, DataLimits.from_environment())
    first = files.sources[0]
    roles = assign_roles(spec.columns, first.names, first.path.name, first.header_line)
    files.check_types(roles.used)
    rows = sum(source.count_rows() for source in files.sources)
    texts = sum(source.path.stat().st_size for source in files.sources if source.header_line)
    return TableSize(rows, len(roles.features), texts)


def check_memory(size: TableSize, limit: int) -> None:
    """Raise ``DataError`` if a run on a table of this size cannot fit a memory limit in bytes."""
    need = size.least_memory
    if need <= limit:
        return
    enough = -(-need // (256 * MIB)) * 256
    hint = f'raise [resources] memory to "{enough} MiB"'
    share = (limit - _TRAINER) / (MATRICES * size.matrix_bytes)
    if share > 0:  # of the table, which then fits in memory
        features, rows = max(1, int(share * size.features)), int(share * size.rows)
        hint += f", keep at most {features:,} of the [columns] features, or upload a sample of {rows:,} rows"
    raise DataError(
        ValidationIssue(
            "the run does not fit its memory limit",
            key="resources.memory",
            found=f"at least {need / MIB:,.0f} MiB for {size.rows:,} rows of {size.features:,} features",
            expected=f"at most {limit / MIB:,.0f} MiB",
            hint=hint,
        )
    )
