"""Arrays to the GPU and back."""

from __future__ import annotations

from typing import Any

import cupy
from numpy.typing import NDArray

from dmls_core.errors import EngineUnavailableError
from dmls_core.models.engines.base import Array


def to_device(array: NDArray[Any]) -> Array:
    """Copy an array to the GPU.

    Raises:
        EngineUnavailableError: there is no GPU, or its driver is too old.
        MemoryError: it does not fit.
    """
    try:
        return cupy.asarray(array)
    except cupy.cuda.memory.OutOfMemoryError as error:
        raise MemoryError(f"the GPU has no room for {array.nbytes / 2**20:.0f} MiB of data") from error
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise EngineUnavailableError(f"the GPU cannot be used: {error}") from error


def to_host(array: Array) -> NDArray[Any]:
    """Copy an array of the GPU (or of the CPU) into a NumPy array."""
    host: NDArray[Any] = cupy.asnumpy(array)
    return host
