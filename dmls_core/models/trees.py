"""The trees of a Treelite model in flat arrays, with the prediction of every inner node as a leaf."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import treelite

_AT_MOST = 3
"""Treelite's number of the test "at most the threshold", which scikit-learn's and cuML's forests use."""


@dataclass(frozen=True, slots=True)
class FlatTrees:
    """Some trees of a model, one after the other: a node is a position in the arrays.

    Attributes:
        roots: (n_trees,) int64.
        features: (n_nodes,) int64, the column that a node tests; 0 in a leaf.
        thresholds: (n_nodes,) float32 or float64: a row goes left if its value is at most the threshold.
        missing_left: (n_nodes,) bool, whether a row without a value goes left.
        children: (n_nodes, 2) int64, left and right; in a leaf twice the leaf itself.
        values: (n_nodes, outputs) float64: the mean of the training rows in the node.
        rows: (n_nodes,) int64, number of these rows, as the library counts them.
        depth: depth of the deepest leaf, 0 for a root alone.
    """

    roots: NDArray[np.int64]
    features: NDArray[np.int64]
    thresholds: NDArray[np.floating[Any]]
    missing_left: NDArray[np.bool_]
    children: NDArray[np.int64]
    values: NDArray[np.float64]
    rows: NDArray[np.int64]
    depth: int


def read_trees(model: treelite.Model, outputs: int, *, most: int) -> Iterator[FlatTrees]:
    """Read the trees of a forest of scikit-learn or cuML in order, at most ``most`` at once.

    Raises:
        ValueError: the trees have other tests than ``value <= threshold``, or no row counts.
    """
    for first in range(0, model.num_tree, most):
        accessors = [
            model.get_tree_accessor(tree) for tree in range(first, min(first + most, model.num_tree))
        ]
        yield _flat([_fields(accessor, outputs) for accessor in accessors])


def _fields(accessor: Any, outputs: int) -> dict[str, NDArray[Any]]:  # noqa: ANN401 - treelite is not typed
    """Read one tree; its arrays are copies, so the model may be released."""
    field = accessor.get_field
    left, right = field("cleft").astype(np.int64), field("cright").astype(np.int64)
    leaf = left < 0
    if not (field("cmp")[~leaf] == _AT_MOST).all():
        raise ValueError("the trees have tests other than value <= threshold")
    itself = np.arange(len(left))
    values = np.zeros((len(left), outputs))
    if len(vectors := field("leaf_vector")):
        starts = field("leaf_vector_begin")[leaf].astype(np.int64)
        values[leaf] = vectors[starts[:, None] + np.arange(outputs)]
    else:
        values[leaf, 0] = field("leaf_value")[leaf]
    rows = field("data_count").astype(np.int64)
    # cuML's trees have no weights: cuML draws rows by weight, and counts each as often as it was drawn.
    weighted = field("sum_hess_present")
    weights = field("sum_hess") if len(weighted) and weighted.all() else rows
    if len(weights) != len(left):
        raise ValueError("the trees do not record how many rows reached their leaves")
    return {
        "features": np.where(leaf, 0, field("split_index")).astype(np.int64),
        "thresholds": field("threshold").copy(),
        "missing_left": field("default_left").astype(bool),
        "children": np.stack([np.where(leaf, itself, left), np.where(leaf, itself, right)], axis=1),
        "values": values,
        "rows": rows,
        "weights": weights.astype(np.float64),
    }


def _flat(trees: list[dict[str, NDArray[Any]]]) -> FlatTrees:
    roots = np.cumsum([0, *(len(tree["rows"]) for tree in trees)])[:-1]
    children = np.concatenate([tree["children"] + root for tree, root in zip(trees, roots, strict=True)])
    values, weights = (np.concatenate([tree[name] for tree in trees]) for name in ("values", "weights"))
    levels = [roots]
    while len(inner := levels[-1][children[levels[-1], 0] != levels[-1]]):
        levels[-1] = inner
        levels.append(children[inner].ravel())
    for inner in reversed(levels[:-1]):
        shares = weights[children[inner]] / weights[children[inner]].sum(axis=1, keepdims=True)
        values[inner] = (values[children[inner]] * shares[:, :, None]).sum(axis=1)
    return FlatTrees(
        roots=roots,
        features=np.concatenate([tree["features"] for tree in trees]),
        thresholds=np.concatenate([tree["thresholds"] for tree in trees]),
        missing_left=np.concatenate([tree["missing_left"] for tree in trees]),
        children=children,
        values=values,
        rows=np.concatenate([tree["rows"] for tree in trees]),
        depth=len(levels) - 1,
    )
