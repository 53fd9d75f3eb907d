"""XGBoost on CUDA: the data stays on the GPU from the first trial to the last."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from dmls_core.models.engines.base import Array
from dmls_core.models.engines.cpu.xgboost import XGBoostEngine
from dmls_core.models.engines.gpu.memory import to_device, to_host


class CudaXGBoostEngine(XGBoostEngine):
    """Fits boosted trees with XGBoost on a GPU."""

    name = "gpu"
    libraries = ("xgboost", "cupy", "numpy", "treelite")
    device = "cuda"

    def place(self, array: NDArray[Any]) -> Array:
        """Copy an array to the GPU."""
        return to_device(array)

    def fetch(self, array: Array) -> NDArray[Any]:
        """Copy an array of the GPU into a NumPy array."""
        return to_host(array)
