"""Prune grown trees to the trees that would have grown with a smaller limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.search.forest.bins import Bins
from dmls_core.search.forest.space import restrictiveness
from dmls_core.spec.definitions import Direction, Scalar

EPSILON = float(np.finfo(np.double).eps)
"""Number that scikit-learn adds to a split's gain before comparing it with ``min_impurity_decrease``."""

LEAF = -1
NO_FEATURE = -2
"""scikit-learn's values of a leaf's children, and of its feature and threshold."""

Tree = Any
"""``sklearn.tree._tree.Tree``."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """The properties of a tree's nodes that pruning needs, as arrays of shape (n_nodes,).

    Attributes:
        parents: -1 at the root.
        depths: 0 at the root.
        rows: distinct training rows in the node.
        gains: weighted decrease of impurity by the node's split; infinite in a leaf.
        levels: nodes of each depth, from the root down.
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

    def stops(self, limits: Sequence[Mapping[str, Scalar]], rows: int) -> NDArray[np.bool_]:
        """Return whether a tree under each of the limits would not have split each node: (n_nodes, n_limits).

        ``limits`` are values of the same hyperparameters of ``PRUNING``; the tree has grown on ``rows`` rows.
        """
        stopped = np.zeros((len(self.parents), len(limits)), np.bool_)
        for name in limits[0]:
            bounds = np.array([restrictiveness(name, limit[name], rows) for limit in limits])
            if name == "max_depth":
                stopped |= self.depths[:, None] >= -bounds
            elif name == "min_samples_split":
                stopped |= self.rows[:, None] < bounds
            else:
                stopped |= self.gains[:, None] + EPSILON < bounds
        return stopped

    def pruned_leaves(self, limits: Sequence[Mapping[str, Scalar]], rows: int) -> NDArray[np.int32]:
        """Return the leaf of each node's rows under each of the limits: (n_nodes, n_limits).

        It is the first unsplit node on the path from the root, or the node itself.
        """
        stops = self.stops(limits, rows)
        leaf_of = np.zeros(stops.shape, np.int32)
        for nodes in self.levels[1:]:
            above = self.parents[nodes]
            ahead = leaf_of[above]
            stopped = (ahead != above[:, None]) | stops[above]
            leaf_of[nodes] = np.where(stopped, ahead, nodes[:, None])
        return leaf_of


def prune_forest(
    forest: Any,  # noqa: ANN401 - scikit-learn is not typed
    trees: int,
    limits: Mapping[str, Scalar],
    rows: int,
    bins: Bins | None,
) -> None:
    """Keep the first ``trees`` trees of a scikit-learn forest, and prune them in place.

    ``limits`` are values of hyperparameters of ``PRUNING``; the forest has grown on ``rows`` rows. ``bins``
    decodes its thresholds, if they are between codes.
    """
    forest.estimators_ = forest.estimators_[:trees]
    for estimator in forest.estimators_:
        estimator.tree_ = prune_tree(estimator.tree_, limits, rows, bins)


def prune_tree(tree: Tree, limits: Mapping[str, Scalar], rows: int, bins: Bins | None) -> Tree:
    """Return the tree that would have grown with these limits; see ``prune_forest``."""
    found = Nodes.of(tree)
    stops = found.stops([limits], rows)[:, 0]
    leaf_of = found.pruned_leaves([limits], rows)[:, 0]
    kept = np.flatnonzero(leaf_of == np.arange(len(leaf_of)))
    place = np.full(len(leaf_of), LEAF)
    place[kept] = np.arange(len(kept))
    state = tree.__getstate__()
    nodes = state["nodes"][kept].copy()
    leaf = stops[kept] | (nodes["left_child"] == LEAF)
    for side in ("left_child", "right_child"):
        nodes[side] = np.where(leaf, LEAF, place[nodes[side]])
    nodes["feature"][leaf] = NO_FEATURE
    nodes["threshold"][leaf] = NO_FEATURE
    if bins:
        nodes["threshold"] = bins.decode(nodes["feature"], nodes["threshold"])
    smaller = type(tree)(tree.n_features, np.asarray(tree.n_classes, dtype=np.intp), tree.n_outputs)
    smaller.__setstate__(
        {
            "max_depth": int(found.depths[kept].max()),
            "node_count": len(kept),
            "nodes": nodes,
            "values": state["values"][kept].copy(),
        }
    )
    return smaller


def best_limits(scores: NDArray[np.float64], direction: Direction) -> int:
    """Return the pruning with the best mean score over the larger half of the sizes; of equal ones the first.

    Forests of similar size differ by chance: their mean is less noisy than the best of them. ``scores`` has
    the shape (n_sizes, n_limits), with ascending sizes.
    """
    means = scores[len(scores) // 2 :].mean(axis=0)
    return int(means.argmax() if direction == "maximize" else means.argmin())
