"""What a forest would answer were its trees cut at a smaller depth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

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
    if not model.get_header_accessor().get_field("average_tree_output")[0]:
        return None
    grown = []
    for number in range(min(trees, model.num_tree)):
        tree = _Tree(model.get_tree_accessor(number))
        if tree.values is None:
            return None
        grown.append(tree)
    depths, outputs = max(len(tree.levels) for tree in grown), grown[0].values.shape[1]  # type: ignore[union-attr]
    rows = features[: max(1, VALUES // (depths * outputs))]
    answers = np.zeros((depths, len(rows), outputs))
    for tree in grown:
        tree.add(rows, answers)
    return answers / len(grown)


class _Tree:
    """One tree, with what each of its nodes would answer as a leaf."""

    def __init__(self, accessor: Any) -> None:  # noqa: ANN401  Treelite has no name for it
        self._left, self._right = accessor.get_field("cleft"), accessor.get_field("cright")
        self._feature, self._threshold = accessor.get_field("split_index"), accessor.get_field("threshold")
        self._missing_left = accessor.get_field("default_left").astype(bool)
        self.levels: list[NDArray[Any]] = []
        level = np.zeros(1, dtype=np.int64)
        while len(level):
            self.levels.append(level)
            children = np.concatenate([self._left[level], self._right[level]])
            level = children[children >= 0]
        self.values = self._means(accessor)

    def _means(self, accessor: Any) -> NDArray[np.float64] | None:  # noqa: ANN401
        """Return what each node answers, of shape (n_nodes, n_outputs)."""
        leaf = self._left < 0
        weights = next(
            (
                accessor.get_field(name).astype(np.float64)
                for name in ("sum_hess", "data_count")
                if len(found := accessor.get_field(f"{name}_present")) and found[leaf].all()
            ),
            None,
        )
        if weights is None:
            return None
        begin, end = accessor.get_field("leaf_vector_begin"), accessor.get_field("leaf_vector_end")
        width = int((end[leaf] - begin[leaf])[0]) if len(end) else 0
        sums = np.zeros((len(leaf), max(1, width)))
        if width:
            places = begin[leaf][:, np.newaxis] + np.arange(width, dtype=np.uint64)
            sums[leaf] = accessor.get_field("leaf_vector")[places.astype(np.int64)]
        else:
            sums[leaf, 0] = accessor.get_field("leaf_value")[leaf]
        weights[~leaf] = 0.0
        sums *= weights[:, np.newaxis]
        for level in reversed(self.levels):
            inner = level[self._left[level] >= 0]
            for side in (self._left, self._right):
                sums[inner] += sums[side[inner]]
                weights[inner] += weights[side[inner]]
        means: NDArray[np.float64] = sums / weights[:, np.newaxis]
        return means

    def add(self, rows: NDArray[np.float32], answers: NDArray[np.float64]) -> None:
        """Add this tree's answers to rows, cut at each depth; deeper ones are those of the whole tree."""
        values: Any = self.values
        nodes = np.zeros(len(rows), dtype=np.int64)
        every = np.arange(len(rows))
        for depth in range(len(answers)):
            if depth >= len(self.levels):
                answers[depth:] += values[nodes]
                return
            answers[depth] += values[nodes]
            found = rows[every, self._feature[nodes].clip(0)]
            goes_left = np.where(np.isnan(found), self._missing_left[nodes], found <= self._threshold[nodes])
            children = np.where(goes_left, self._left[nodes], self._right[nodes])
            nodes = np.where(self._left[nodes] < 0, nodes, children)
