"""The size of a forest, and the saving by a smaller depth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import treelite

SIZE_FILE = "size.json"
"""Written next to the checkpoint by the trainer, which has the forest in memory."""

_MEGA = 1e6


def forest_size(model: treelite.Model) -> dict[str, Any]:
    """Return the number of trees, and of nodes down to each depth, of a loaded checkpoint."""
    counts = np.zeros(0, dtype=np.int64)
    for number in range(model.num_tree):
        tree = model.get_tree_accessor(number)
        left, right = tree.get_field("cleft"), tree.get_field("cright")
        levels, level = [], np.zeros(1, dtype=np.int64)
        while len(level):
            levels.append(len(level))
            children = np.concatenate([left[level], right[level]])
            level = children[children >= 0]
        grown = np.zeros(max(len(counts), len(levels)), dtype=np.int64)
        grown[: len(counts)] = counts
        grown[: len(levels)] += levels
        counts = grown
    return {"schema": 1, "trees": model.num_tree, "nodes_to_depth": counts.cumsum().tolist()}


def visited_nodes(model: treelite.Model, rows: NDArray[np.float32]) -> float:
    """Return the mean number of nodes that a prediction of ``rows``, (n_rows, n_features), visits."""
    import treelite

    leaves = treelite.gtil.predict_leaf(model, rows).reshape(len(rows), -1).astype(np.int64)
    total = 0.0
    for number in range(model.num_tree):
        tree = model.get_tree_accessor(number)
        left, right = tree.get_field("cleft"), tree.get_field("cright")
        depths = np.zeros(len(left), np.int64)
        level = np.zeros(1, np.int64)
        while len(level := level[left[level] >= 0]):
            for children in (left[level], right[level]):
                depths[children] = depths[level] + 1
            level = np.concatenate([left[level], right[level]])
        total += float(depths[leaves[:, number]].mean()) + 1
    return total


def size_hint(folder: Path, size: int, limit: int) -> str:
    """Return the model's size by depth, and a depth that fits, in words."""
    advice = "give max_depth or n_estimators a smaller max, or "
    path = folder / SIZE_FILE
    if not path.is_file():
        return advice
    statistics = json.loads(path.read_bytes())
    nodes = statistics["nodes_to_depth"]
    depth = len(nodes) - 1
    fitting = [d for d, count in enumerate(nodes) if count / nodes[-1] * size <= limit]
    text = f"its {statistics['trees']:,} trees have {nodes[-1]:,} nodes and are up to {depth} deep; "
    if fitting and fitting[-1]:
        saved = size * nodes[fitting[-1]] / nodes[-1] / _MEGA
        text += f"cut at depth {fitting[-1]} they have {nodes[fitting[-1]]:,} ({saved:,.0f} MB); "
    if enough := statistics.get("enough"):
        saved = size * nodes[enough] / nodes[-1] / _MEGA
        text += f"at depth {enough} ({saved:,.0f} MB) they lose nothing that can be measured; "
    return text + advice
