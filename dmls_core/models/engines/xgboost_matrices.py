"""XGBoost's matrices, of arrays in memory and of matrices on disk."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dmls_core.models.engines.base import Array
from dmls_core.spec.definitions import Scalar
from dmls_core.stored_matrix import BLOCK_BYTES, StoredMatrix

if TYPE_CHECKING:
    import xgboost


_FEWEST_SAMPLED = 20_000
"""Minimum rows of a table on disk that determine the bins."""

_BUFFERS = 16 << 20
"""What XGBoost and its threads hold in any case."""


def _sketch_bytes(rows: int, max_bin: int) -> int:
    """Return the memory of the sketch by which XGBoost finds the bins of one column of numbers.

    The sketch has a queue and a summary for each doubling of the rows that it has seen: of a wide table, all
    sketches together are several times the matrix. See ``WQSummary`` in XGBoost's ``quantile.h``.
    """
    levels = 1
    while (size := levels * 8 * max_bin + 1) << levels < rows:
        levels += 1
    return min(44 * rows, 28 * size * ((rows // size).bit_length() + 1))


def rows_to_bin(columns: int) -> int:
    """Return the number of rows on disk that determine the bins."""
    return max(_FEWEST_SAMPLED, BLOCK_BYTES // (4 * columns))


def fit_bytes(rows: int, columns: int, params: Mapping[str, Scalar], histograms: int, *, stored: bool) -> int:
    """Estimate sketches, bins and histograms, in bytes; ``histograms`` limits those of rows in memory.

    The sketches are gone when the first histogram is needed, and leave their memory to the histograms. Of a
    table on disk, blocks are read meanwhile.
    """
    bins = int(params.get("max_bin", 256))
    depth = params.get("max_depth", 6)
    level = min(2 ** (int(depth) - 1), rows) if isinstance(depth, int | float) and depth else rows
    nodes = 16 * columns * bins  # the histogram of one node, of which two are the least
    widest = nodes * (level + 2)
    if stored:
        sampled = min(rows, rows_to_bin(columns))
        return max(columns * (_sketch_bytes(sampled, bins) + 6 * sampled), 2 * BLOCK_BYTES + widest)
    growing = min(widest, histograms + 4 * nodes)
    return _BUFFERS + 2 * rows * columns + max(columns * _sketch_bytes(rows, bins), growing)


def _category_levels(features: Array, categories: Sequence[int]) -> list[int]:
    """Return the number of bins of each column of categories: one for each code up to the largest.

    On a cluster, the largest code of all workers counts: their parameters must be the same.
    """
    import numpy as np
    from xgboost import collective

    levels = np.array([int(features[:, position].max()) + 1 for position in categories])
    if len(levels) and collective.is_distributed():
        levels = collective.allreduce(levels, collective.Op.MAX)
    counts: list[int] = levels.tolist()
    return counts


def total_bins(features: Array, categories: Sequence[int], max_bin: Scalar) -> int:
    """Return the maximum number of bins of all columns."""
    numbers = features.shape[1] - len(categories)
    bins: int = numbers * int(max_bin) + sum(_category_levels(features, categories))
    return bins


def has_new_levels(scored: Array, features: Array, categories: Sequence[int]) -> bool:
    """Return whether ``scored`` has codes of categories beyond those of ``features``."""
    scored_levels, levels = (_category_levels(rows, categories) for rows in (scored, features))
    return any(map(int.__gt__, scored_levels, levels))


def feature_types(features: Array, categories: Sequence[int]) -> dict[str, Any]:
    """Return the arguments by which XGBoost's matrices know the columns of categories."""
    if not categories:
        return {}
    types = ["c" if position in categories else "q" for position in range(features.shape[1])]
    return {"feature_types": types, "enable_categorical": True}


def binned(
    features: Array,
    target: Array | None,
    weights: Array | None = None,
    *,
    feature_types: list[str] | None = None,
    **options: Any,  # noqa: ANN401 - XGBoost's
) -> xgboost.DMatrix:
    """Bin rows; those of a ``StoredMatrix`` to files, with block after block of them in memory."""
    import xgboost

    if not isinstance(features, StoredMatrix):
        return xgboost.QuantileDMatrix(
            features, target, weight=weights, feature_types=feature_types, **options
        )
    if "ref" not in options:
        options["ref"] = _sampled(features, weights, feature_types, **options)
    return xgboost.ExtMemQuantileDMatrix(_stored_rows(features, target, weights, feature_types), **options)


def _sampled(
    matrix: StoredMatrix,
    weights: Array | None,
    feature_types: list[str] | None,
    **options: Any,  # noqa: ANN401 - XGBoost's
) -> xgboost.DMatrix:
    """Bin a random block of rows, whose bins are those of all rows.

    XGBoost's sketches of all rows grow with them: 7 MB for each column of 10 million rows. The block has the
    largest code of each category, so no code is beyond the bins.
    """
    import numpy as np
    import xgboost

    rows = np.arange(len(matrix), dtype=np.int32)
    if len(matrix) > (most := rows_to_bin(matrix.shape[1])):
        chosen = np.random.default_rng(0).choice(len(matrix), most, replace=False)
        largest = [
            int(matrix[:, position].argmax())
            for position, feature_type in enumerate(feature_types or ())
            if feature_type == "c"
        ]
        rows = np.unique(np.concatenate([chosen, largest]).astype(np.int32))
    chosen_weights = None if weights is None else weights[rows]
    return xgboost.QuantileDMatrix(
        matrix[rows], weight=chosen_weights, feature_types=feature_types, **options
    )


def plain(
    features: Array, *, nthread: int, feature_types: list[str] | None = None, enable_categorical: bool = False
) -> xgboost.DMatrix:
    """Return rows with their values, not binned; see ``binned``."""
    import xgboost

    if isinstance(features, StoredMatrix):
        features, feature_types = _stored_rows(features, None, None, feature_types), None
    return xgboost.DMatrix(
        features, feature_types=feature_types, nthread=nthread, enable_categorical=enable_categorical
    )


def _stored_rows(
    matrix: StoredMatrix, target: Array | None, weights: Array | None, feature_types: list[str] | None
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
            weight = None if weights is None else weights[positions]
            input_data(data=block, label=label, weight=weight, feature_types=feature_types)
            return True

    return Blocks()
