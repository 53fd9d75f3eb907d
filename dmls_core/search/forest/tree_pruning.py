"""Where the rows of a tree end if the tree had been stopped earlier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.search.forest.space import restrictiveness
from dmls_core.spec.definitions import Scalar

EPSILON = float(np.finfo(np.double).eps)
"""What scikit-learn adds to a split's gain before it asks whether that is enough."""

Tree = Any
"""``sklearn.tree._tree.Tree``."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """What a cut asks of each node of a tree.

    Attributes:
        parents: (n_nodes,) int64; -1 at the root.
        depths: (n_nodes,) int64; 0 at the root.
        rows: (n_nodes,) different training rows in the node.
        gains: (n_nodes,) weighted decrease of impurity by the node's split; infinite in a leaf.
        levels: the nodes of each depth, from the root down.
    """

    parents: NDArray[np.int64]
    depths: NDArray[np.int64]
    rows: NDArray[np.int64]
    gains: NDArray[np.float64]
    levels: tuple[NDArray[np.int64], ...]

    @classmethod
    def of(cls, tree: Tree) -> Nodes:
        """Read a tree's nodes."""
        left, right = tree.children_left, tree.children_right
        inner = np.flatnonzero(left >= 0)
        parents = np.full(len(left), -1)
        parents[left[inner]] = inner
        parents[right[inner]] = inner
        depths = np.zeros(len(left), np.int64)
        levels = [np.zeros(1, np.int64)]
        while len(split := levels[-1][left[levels[-1]] >= 0]):
            level = np.concatenate([left[split], right[split]])
            depths[level] = len(levels)
            levels.append(level)
        weight, impurity = tree.weighted_n_node_samples, tree.impurity
        gains = np.full(len(left), np.inf)
        down, up = left[inner], right[inner]
        kept = (weight[down] * impurity[down] + weight[up] * impurity[up]) / weight[inner]
        gains[inner] = weight[inner] / weight[0] * (impurity[inner] - kept)
        return cls(parents, depths, tree.n_node_samples, gains, tuple(levels))

    def stops(self, cuts: Sequence[Mapping[str, Scalar]], rows: int) -> NDArray[np.bool_]:
        """Say of each node whether a tree that is cut so would not have split it.

        Args:
            cuts: each has values of the same hyperparameters of ``PRUNING``.
            rows: rows of the matrix that the tree was grown on.

        Returns:
            (n_nodes, n_cuts).
        """
        stopped = np.zeros((len(self.parents), len(cuts)), np.bool_)
        for name in cuts[0]:
            limits = np.array([restrictiveness(name, cut[name], rows) for cut in cuts])
            if name == "max_depth":
                stopped |= self.depths[:, None] >= -limits
            elif name == "min_samples_split":
                stopped |= self.rows[:, None] < limits
            else:
                stopped |= self.gains[:, None] + EPSILON < limits
        return stopped

    def landings(self, cuts: Sequence[Mapping[str, Scalar]], rows: int) -> NDArray[np.int32]:
        """Return the node in which a row that ends in a node would end under each cut.

        Returns:
            (n_nodes, n_cuts): the first stopped node on the way from the root, or the node itself.
        """
        stops = self.stops(cuts, rows)
        landing = np.zeros(stops.shape, np.int32)
        for nodes in self.levels[1:]:
            above = self.parents[nodes]
            ahead = landing[above]
            stopped = (ahead != above[:, None]) | stops[above]
            landing[nodes] = np.where(stopped, ahead, nodes[:, None])
        return landing
