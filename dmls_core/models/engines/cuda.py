"""Shared parts of engines on an NVIDIA GPU: arrays on the device, and a reader of data files."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dmls_core.errors import EngineUnavailableError
from dmls_core.models.engines.base import Array, Engine, Reader

if TYPE_CHECKING:
    import cudf
    import pyarrow as pa
    from numpy.typing import NDArray


def to_device(array: NDArray[Any]) -> Array:
    """Copy an array to the GPU.

    Raises:
        EngineUnavailableError: there is no GPU, or its driver is too old.
        MemoryError: the GPU has too little memory.
    """
    import cupy

    try:
        return cupy.asarray(array)
    except MemoryError as error:  # CuPy's, or RMM's, which allocates once cuML is imported
        size = f"{array.nbytes / 2**20:.0f} MiB"
        raise MemoryError(f"the GPU has too little memory for {size} of data") from error
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise EngineUnavailableError(f"the GPU cannot be used: {error}") from error


def to_host(array: Array) -> NDArray[Any]:
    """Copy an array of the GPU (or of the CPU) to a NumPy array."""
    import cupy

    host: NDArray[Any] = cupy.asnumpy(array)
    return host


class CudaEngine(Engine):
    """An engine whose arrays are CuPy's; its data stays on the GPU from the first trial to the last."""

    device = "gpu"

    def place(self, array: NDArray[Any]) -> Array:
        """Copy an array to the GPU."""
        return to_device(array)

    def fetch(self, array: Array) -> NDArray[Any]:
        """Copy an array from the GPU to a NumPy array."""
        return to_host(array)

    @classmethod
    def reader(cls) -> Reader | None:
        """Return cuDF's reader, if cuDF is installed."""
        if find_spec("cudf") is None:
            return None
        from dmls_core.models.engines.cuda import CudfReader

        return CudfReader()


Dtype = Literal["float32", "float64", "str"]
"""The type of a column."""

_FAILURES = (ValueError, TypeError, OverflowError, RuntimeError, MemoryError)
"""Exceptions of cuDF if it cannot read a file; the last two also if the GPU's memory is full."""

log = logging.getLogger(__name__)


class CudfReader(Reader):
    """Reads columns of a file with cuDF."""

    def csv(
        self, path: Path, dtypes: Mapping[int, Dtype], *, header_lines: int, columns: int
    ) -> pa.Table | None:
        """Read columns of a CSV file, given ``header_lines`` above the first record of ``columns`` fields.

        Returns:
            Columns named by their positions (``"3"``), without columns of numbers that have a gap; ``None``
            if a record has too many or too few fields, or cuDF cannot read the file.
        """
        import cudf

        # A record has the right number of fields if its last column has a value and the next one has none.
        probes = {columns - 1: "str", columns: "str"} | dict(dtypes)
        try:
            frame = cudf.read_csv(
                str(path),
                header=None,
                skiprows=header_lines,
                names=[str(position) for position in range(columns + 1)],
                usecols=[str(position) for position in sorted(probes)],
                # Read in double precision and rounded: cuDF's own single precision may be a digit off.
                dtype={str(at): "str" if dtype == "str" else "float64" for at, dtype in probes.items()},
                # The encoder decides which texts are missing values.
                keep_default_na=False,
                na_values=[""],
                skip_blank_lines=False,
            )
            if frame[str(columns)].notnull().any() or frame[str(columns - 1)].isnull().any():
                return None
            columns_by_name = {
                str(position): _clean(frame[str(position)], dtype) for position, dtype in dtypes.items()
            }
            present = {name: column for name, column in columns_by_name.items() if column is not None}
            return cudf.DataFrame(present).to_arrow(preserve_index=False)
        except _FAILURES as error:
            log.info("cuDF cannot read %s: %s", path.name, error)
            return None

    def parquet(self, path: Path, dtypes: Mapping[str, Dtype]) -> pa.Table | None:
        """Read columns of a Parquet file; return ``None`` if cuDF cannot read it."""
        import cudf

        try:
            frame = cudf.read_parquet(str(path), columns=list(dtypes))
            typed = {name: frame[name].astype(dtype) for name, dtype in dtypes.items() if dtype != "str"}
            return frame.assign(**typed)[list(dtypes)].to_arrow(preserve_index=False)
        except _FAILURES as error:
            log.info("cuDF cannot read %s: %s", path.name, error)
            return None


def _clean(column: cudf.Series, dtype: Dtype) -> cudf.Series | None:
    """Return a column as its type; None for numbers with a gap, which may be an invalid value."""
    if dtype == "str":
        return column
    # NaN is not null in cuDF, but differs from itself.
    if column.isnull().any() or (column != column).any():
        return None
    return column.astype(dtype)
