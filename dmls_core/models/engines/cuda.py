"""Shared parts of engines on an NVIDIA GPU: arrays on the device, and a reader of data files."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from dmls_core.errors import EngineUnavailableError
from dmls_core.models.engines.base import Array, Engine, Reader

if TYPE_CHECKING:
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
    except cupy.cuda.memory.OutOfMemoryError as error:
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
        from dmls_core.models.engines.cudf_reader import CudfReader

        return CudfReader()
