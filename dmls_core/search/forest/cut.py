"""A grown forest, cut to fewer trees and smaller ones: a model like any other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dmls_core.search.forest.bins import Bins
from dmls_core.search.forest.tree_pruning import Nodes, Tree
from dmls_core.spec.definitions import Scalar

LEAF = -1
NO_FEATURE = -2
"""What scikit-learn writes into a leaf's children, and into its feature and threshold."""


def cut_forest(
    forest: Any,  # noqa: ANN401 - scikit-learn is not typed
    trees: int,
    cut: Mapping[str, Scalar],
    rows: int,
    bins: Bins | None,
) -> None:
    """Cut a forest in place.

    Args:
        forest: a grown forest of scikit-learn.
        trees: how many of its trees to keep, from the first.
        cut: where its trees stop.
        rows: rows that it was grown on.
        bins: turns thresholds between codes into such between values.
    """
    forest.estimators_ = forest.estimators_[:trees]
    for estimator in forest.estimators_:
        estimator.tree_ = cut_tree(estimator.tree_, cut, rows, bins)


def cut_tree(tree: Tree, cut: Mapping[str, Scalar], rows: int, bins: Bins | None) -> Tree:
    """Return the tree that would have grown if it had been stopped so; see ``cut_forest``."""
    found = Nodes.of(tree)
    stops = found.stops([cut], rows)[:, 0]
    landing = found.landings([cut], rows)[:, 0]
    kept = np.flatnonzero(landing == np.arange(len(landing)))
    place = np.full(len(landing), LEAF)
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
