"""Predictions of a forest whose trees are cut at each smaller depth."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.models.trees import FlatTrees, read_trees

if TYPE_CHECKING:
    import treelite

TREES = 100
"""Number of trees that are evaluated, from the first: more hardly change the loss by a cut."""

VALUES = 20_000_000
"""Maximum number of predictions in memory, which limits the rows."""


def predictions_by_depth(
    model: treelite.Model, features: NDArray[np.float32], *, trees: int = TREES
) -> NDArray[np.float64] | None:
    """Return the predictions of a forest cut at each depth: (n_depths, n_rows, n_outputs), depth 0 first.

    A node that becomes a leaf predicts the mean of the leaves below it, weighted by their training rows, as
    if the tree had been grown no deeper. ``features``: (n_rows, n_features); more than ``VALUES`` predictions
    reduce the rows. The result is ``None`` for boosted trees, whose nodes predict nothing by themselves, and
    for models without weights of their leaves.
    """
    header = model.get_header_accessor()
    if not header.get_field("average_tree_output")[0]:
        return None
    shape: Any = header.get_field("leaf_vector_shape")
    outputs, count = int(np.prod(shape)), min(trees, model.num_tree)
    predictions = np.zeros((1, len(features), outputs))
    try:
        # One by one: a large forest is not in memory twice.
        for tree in islice(read_trees(model, outputs, most=1), count):
            if (deeper := tree.depth + 1 - len(predictions)) > 0:
                fits = max(1, VALUES // ((tree.depth + 1) * outputs))
                # Below its own depth a tree's predictions do not change.
                predictions = np.concatenate([predictions, np.repeat(predictions[-1:], deeper, axis=0)])[
                    :, :fits
                ]
            _add(tree, features[: predictions.shape[1]], predictions)
    except ValueError:
        return None
    return predictions / count


def _add(tree: FlatTrees, rows: NDArray[np.float32], predictions: NDArray[np.float64]) -> None:
    """Add the predictions of a tree that is cut at each depth."""
    nodes, every = np.full(len(rows), tree.roots[0]), np.arange(len(rows))
    for at_depth in predictions:
        at_depth += tree.values[nodes]
        values = rows[every, tree.features[nodes]]
        goes_left = np.where(np.isnan(values), tree.missing_left[nodes], values <= tree.thresholds[nodes])
        nodes = tree.children[nodes, np.where(goes_left, 0, 1)]
