"""XGBoost's matrices, of arrays in memory and of matrices on disk."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dmls_core.models.engines.base import Array
from dmls_core.stored_matrix import StoredMatrix

if TYPE_CHECKING:
    import xgboost


def binned(
    features: Array,
    target: Array | None,
    *,
    feature_types: list[str] | None = None,
    **options: Any,  # noqa: ANN401 - XGBoost's
) -> xgboost.DMatrix:
    """Bin rows; those of a ``StoredMatrix`` to files, with block after block of them in memory."""
    import xgboost

    if not isinstance(features, StoredMatrix):
        return xgboost.QuantileDMatrix(features, target, feature_types=feature_types, **options)
    return xgboost.ExtMemQuantileDMatrix(stored_rows(features, target, feature_types), **options)


def plain(
    features: Array, *, nthread: int, feature_types: list[str] | None = None, enable_categorical: bool = False
) -> xgboost.DMatrix:
    """Return rows with their values, not binned; see ``binned``."""
    import xgboost

    if isinstance(features, StoredMatrix):
        features, feature_types = stored_rows(features, None, feature_types), None
    return xgboost.DMatrix(
        features, feature_types=feature_types, nthread=nthread, enable_categorical=enable_categorical
    )


def stored_rows(
    matrix: StoredMatrix, target: Array | None, feature_types: list[str] | None
) -> xgboost.DataIter:
    """Return an iterator by which XGBoost reads a matrix block by block; its cache is beside the matrix."""
    import xgboost

    if target is None and not matrix.ascending:
        raise ValueError("rows to score must be in the order of the file, as XGBoost predicts them")

    class Blocks(xgboost.DataIter):
        def __init__(self) -> None:
            self.reset()
            super().__init__(cache_prefix=f"{matrix.path}.{uuid.uuid4().hex}")

        def reset(self) -> None:
            self._blocks = matrix.blocks()

        def next(self, input_data: Callable[..., None]) -> bool:
            positions, block = next(self._blocks, (None, None))
            if block is None:
                return False
            label = None if target is None else target[positions]
            input_data(data=block, label=label, feature_types=feature_types)
            return True

    return Blocks()
