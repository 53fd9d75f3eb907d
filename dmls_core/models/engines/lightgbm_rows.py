"""LightGBM's data sets: of all rows, or of one node's rows in the bins that all nodes share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dmls_core.models.engines.xgboost_matrices import rows_to_bin
from dmls_core.stored_matrix import StoredMatrix

if TYPE_CHECKING:
    import lightgbm
    import numpy as np
    from numpy.typing import NDArray

    from dmls_core.models.engines.base import FloatArray


@dataclass(frozen=True, slots=True)
class NodeRows:
    """One node's rows, (n_rows, n_features), the rows that find the bins, and the number of nodes.

    LightGBM's nodes would each find the bins of some features on their own rows alone. Rows in the order of
    time or of a feature's values would then share a few bins.
    """

    features: NDArray[np.float32]
    sample: NDArray[np.float32]
    nodes: int

    @property
    def size(self) -> int:
        """Return the number of values."""
        return self.features.size

    @property
    def options(self) -> dict[str, Any]:
        """Return LightGBM's parameters for a fit with the other nodes."""
        if self.nodes == 1:
            return {}
        return {"tree_learner": "data", "num_machines": self.nodes, "pre_partition": True}


def sample_to_bin(matrix: StoredMatrix) -> NDArray[np.float32]:
    """Return random rows, in memory, that determine the bins of all rows."""
    import numpy as np

    rows, most = np.arange(len(matrix), dtype=np.int32), rows_to_bin(matrix.shape[1])
    if len(rows) > most:
        rows = np.sort(np.random.default_rng(0).choice(rows, most, replace=False))
    sample: NDArray[np.float32] = matrix[rows]
    return sample


def dataset(
    features: NDArray[np.float32] | NodeRows,
    target: NDArray[Any],
    weights: FloatArray | None,
    categories: Sequence[int],
    options: dict[str, Any],
) -> lightgbm.Dataset:
    """Return rows to bin, by themselves or by the sample of all nodes."""
    import lightgbm

    categorical: Any = list(categories) or "auto"  # which is none for a matrix
    if not isinstance(features, NodeRows):
        return lightgbm.Dataset(
            features, target, weight=weights, params=options, categorical_feature=categorical
        )
    reference = lightgbm.Dataset(features.sample, params=options, categorical_feature=categorical)
    return lightgbm.Dataset(
        features.features, target, weight=weights, params=options, reference=reference.construct()
    )
