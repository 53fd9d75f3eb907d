"""What a forest would answer were its trees cut at a smaller depth."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.models.trees import FlatTrees, read_trees

if TYPE_CHECKING:
    import treelite

TREES = 100
"""Trees that are looked at, the first ones: what is lost by a cut hardly depends on more."""

VALUES = 20_000_000
"""Answers that are kept at most, which bounds the rows."""


def answers_by_depth(
    model: treelite.Model, features: NDArray[np.float32], *, trees: int = TREES
) -> NDArray[np.float64] | None:
    """Return the answers of a forest that is cut at each depth, up to its own.

    A node that becomes a leaf answers with the mean of the leaves below it, each with the weight of the
    training rows that came there, as it would have if the tree had been grown no deeper.

    Args:
        model: a loaded checkpoint.
        features: (n_rows, n_features); fewer rows are answered where the answers would be too many.
        trees: how many trees are looked at.

    Returns:
        Shape (n_depths, n_rows, n_outputs), depth 0 first; None for boosted trees, whose nodes say nothing
        by themselves, and where the model does not tell the weights of its leaves.
    """
    header = model.get_header_accessor()
    if not header.get_field("average_tree_output")[0]:
        return None
    shape: Any = header.get_field("leaf_vector_shape")
    outputs, looked_at = int(np.prod(shape)), min(trees, model.num_tree)
    answers = np.zeros((1, len(features), outputs))
    try:
        # One by one: a large forest is not in memory twice.
        for tree in islice(read_trees(model, outputs, most=1), looked_at):
            if (deeper := tree.depth + 1 - len(answers)) > 0:
                fits = max(1, VALUES // ((tree.depth + 1) * outputs))
                # Beyond its own depth a tree answers what it answers there.
                answers = np.concatenate([answers, np.repeat(answers[-1:], deeper, axis=0)])[:, :fits]
            _add(tree, features[: answers.shape[1]], answers)
    except ValueError:
        return None
    return answers / looked_at


def _add(tree: FlatTrees, rows: NDArray[np.float32], answers: NDArray[np.float64]) -> None:
    """Add a tree's answers to rows, cut at each depth."""
    nodes, every = np.full(len(rows), tree.roots[0]), np.arange(len(rows))
    for at_depth in answers:
        at_depth += tree.values[nodes]
        found = rows[every, tree.features[nodes]]
        goes_left = np.where(np.isnan(found), tree.missing_left[nodes], found <= tree.thresholds[nodes])
        nodes = tree.children[nodes, np.where(goes_left, 0, 1)]
