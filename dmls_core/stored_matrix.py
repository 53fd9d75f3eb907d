"""A matrix in a file, for data larger than memory, read by blocks of rows."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK_BYTES = 32 << 20
"""Size of a block of rows in memory."""


_PAGE_VALUES = mmap.PAGESIZE // 4
"""Values in a page of memory."""


class StoredMatrix:
    """Some rows of a float32 matrix in a file, in the order of ``rows``.

    The file holds one column after the other. Indexing copies the chosen values to memory, as it does for an
    array with an index array: ``matrix[5]``, ``matrix[:100]``, ``matrix[indices]`` and ``matrix[:, 3]``.
    """

    def __init__(self, file: NDArray[np.float32], rows: NDArray[np.integer]) -> None:
        """Take ``rows`` of ``file``: a memory map in column-major order, (n_file_rows, n_columns)."""
        if not isinstance(file, np.memmap) or file.filename is None:
            raise TypeError("not a memory map of a file")
        self.path = str(file.filename)
        self.file: NDArray[np.float32] = file
        self.rows = rows

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, int]:
        """Return the numbers of rows and columns."""
        return len(self.rows), self.file.shape[1]

    @property
    def size(self) -> int:
        """Return the number of values."""
        rows, columns = self.shape
        return rows * columns

    @property
    def ascending(self) -> bool:
        """Return whether the rows are in the order of the file."""
        return bool((np.diff(self.rows) > 0).all())

    def __getitem__(self, key: Any) -> Any:  # noqa: ANN401 - as an array's
        """Return values in memory; see the class."""
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        return read_rows(self.file[:, columns], self.rows[rows])

    def take(self, rows: NDArray[np.integer], axis: int = 0) -> StoredMatrix:
        """Return some of the rows; unlike an array's ``take``, without reading them."""
        if axis != 0:
            raise ValueError("only rows can be taken")
        return StoredMatrix(self.file, self.rows[rows])

    def blocks(self) -> Iterator[tuple[NDArray[np.integer], NDArray[np.float32]]]:
        """Read the rows once, in the order of the file; yield their positions and values, (n, n_columns)."""
        order = np.arange(len(self.rows), dtype=np.int32)
        if not self.ascending:
            order = np.argsort(self.rows, kind="stable").astype(np.int32)
        step = max(1, BLOCK_BYTES // (4 * self.file.shape[1]))
        first = 0
        with Path(self.path).open("rb", buffering=0) as file:
            for start in range(0, len(self.file), step):
                positions = order[first : first + step]
                selected = self.rows[positions]
                selected = selected[: np.searchsorted(selected, start + step)]
                if len(selected):
                    first += len(selected)
                    yield positions[: len(selected)], self._read(file, start, step)[selected - start]

    def _read(self, file: FileIO, start: int, count: int) -> NDArray[np.float32]:
        """Read rows of the file, (count, n_columns), with one long read for each column.

        Through the memory map, the kernel would read small parts, and again if memory is short.
        """
        rows, columns = self.file.shape
        block = np.empty((columns, min(count, rows - start)), np.float32)
        for column, values in enumerate(block):
            file.seek(4 * (column * rows + start))
            if file.readinto(values.data) != values.nbytes:
                raise OSError(f"{self.path} is too short")
        return np.ascontiguousarray(block.T)


def read_rows(values: NDArray[np.float32], rows: Any) -> Any:  # noqa: ANN401 - as an array's
    """Return ``values[rows]``; of a memory map in column-major order, without reading more than needed.

    By default the kernel reads megabytes for each value that is far from the previous one.
    """
    if not isinstance(values, np.memmap) or not np.ndim(rows):
        return np.ascontiguousarray(values[rows])
    sparse = len(rows) * _PAGE_VALUES < len(values)
    memory: mmap.mmap = values._mmap  # type: ignore[attr-defined]  # noqa: SLF001 - NumPy offers no other
    memory.madvise(mmap.MADV_RANDOM if sparse else mmap.MADV_NORMAL)
    try:
        if values.ndim == 1:
            return np.asarray(values[rows])
        selected = np.empty((len(rows), values.shape[1]), np.float32)
        for column in range(values.shape[1]):
            selected[:, column] = values[:, column][rows]
        return selected
    finally:
        memory.madvise(mmap.MADV_NORMAL)


Matrix = NDArray[np.float32] | StoredMatrix
"""A matrix in memory or in a file."""


def row_blocks(matrix: Matrix) -> Iterator[NDArray[np.float32]]:
    """Yield the rows in blocks that fit in memory; a matrix in memory is one block."""
    if isinstance(matrix, StoredMatrix):
        yield from (block for _, block in matrix.blocks())
    else:
        yield matrix


def predict_rows(predict: Callable[[NDArray[np.float32]], NDArray[Any]], matrix: Matrix) -> NDArray[Any]:
    """Return the predictions of all rows; those of a file are predicted block by block."""
    if not isinstance(matrix, StoredMatrix):
        return predict(matrix)
    predictions: NDArray[Any] | None = None
    for positions, block in matrix.blocks():
        part = predict(block)
        if predictions is None:
            predictions = np.empty((len(matrix), *part.shape[1:]), part.dtype)
        predictions[positions] = part
    if predictions is None:
        raise ValueError("there are no rows to predict")
    return predictions
