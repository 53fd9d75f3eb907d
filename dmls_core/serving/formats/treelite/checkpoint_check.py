"""Check the structure of a Treelite checkpoint before Triton loads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dmls_core.errors import DmlsError, ServingError
from dmls_core.serving.formats.treelite import checkpoint
from dmls_core.serving.formats.treelite.gtil import is_classifier

_LEAF, _NUMERICAL, _CATEGORICAL = range(3)
_COMPARISONS = range(1, 6)
"""Treelite's codes of node types and of comparisons."""

_CATEGORIES = 1 << 24
"""Float32 has all whole numbers below this. FIL stores a bit for each category up to the highest."""


def inspect(path: Path) -> dict[str, Any]:
    """Return a checkpoint's task and its numbers of features and classes.

    Raises:
        ServingError: it is not a Treelite checkpoint, or a part of it points outside of the model.
    """
    try:
        return _inspect(path)
    except (DmlsError, MemoryError):
        raise
    except Exception as error:  # Treelite raises whatever its C++ code meets in a damaged file
        raise ServingError(f"{type(error).__name__}: {error}") from error


def _inspect(path: Path) -> dict[str, Any]:
    model = checkpoint.load(path)
    header: Any = model.get_header_accessor()
    classes = header.get_field("num_class").tolist()
    shape = header.get_field("leaf_vector_shape").tolist()
    _check_header(model, classes, shape)
    for number in range(model.num_tree):
        if problem := _problem_of_tree(model.get_tree_accessor(number), model.num_feature, shape):
            raise ServingError(f"tree {number} {problem}")
    checkpoint.predict(model, np.zeros((1, model.num_feature), dtype=np.float32), threads=1)
    classifier = is_classifier(model)
    return {
        "task": "classification" if classifier else "regression",
        "features": model.num_feature,
        # Boosted trees for two classes may have one output.
        "classes": 2 if classifier and classes[0] == 1 else classes[0],
    }


def _check_header(model: Any, classes: list[int], shape: list[int]) -> None:  # noqa: ANN401 - no types
    """Raise ServingError unless all parts of a model's header agree."""
    header = model.get_header_accessor()
    targets, classes_of_tree = (header.get_field(name) for name in ("target_id", "class_id"))
    n_targets = int(header.get_field("num_target")[0])
    if n_targets != 1:
        raise ServingError(f"targets: found {n_targets}, expected 1")
    if model.num_tree < 1 or model.num_feature < 1 or len(classes) != 1 or classes[0] < 1:
        raise ServingError(
            f"it has {model.num_tree} trees, {model.num_feature} features and {classes} classes"
        )
    # A leaf has a value of one class, or a vector with a value for each.
    if shape not in ([1, 1], [1, classes[0]]):
        raise ServingError(f"its leaves have the shape {shape}, but there are {classes[0]} classes")
    low = 0 if shape == [1, 1] and classes[0] > 1 else -1
    for name, ids, end in (("target", targets, 1), ("class", classes_of_tree, classes[0])):
        if len(ids) != model.num_tree or min(ids) < (low if name == "class" else -1) or max(ids) >= end:
            raise ServingError(f"its trees do not all have a {name}")
    scores = header.get_field("base_scores")
    if len(scores) != classes[0] or not np.isfinite(scores).all():
        raise ServingError(f"it has the base scores {scores.tolist()} for {classes[0]} classes")


def _problem_of_tree(tree: Any, n_features: int, shape: list[int]) -> str:  # noqa: ANN401 - no types
    """Return what is wrong with the structure of a tree, or an empty text."""
    count = int(tree.get_field("num_nodes")[0])
    left, right, types = (tree.get_field(name) for name in ("cleft", "cright", "node_type"))
    split, tests = tree.get_field("split_index"), tree.get_field("cmp")
    values = tree.get_field("leaf_value"), tree.get_field("threshold"), tree.get_field("default_left")
    if count < 1 or any(len(part) != count for part in (left, right, types, split, tests, *values)):
        return "has parts of different lengths"
    inner = types != _LEAF
    if not np.isin(types, (_LEAF, _NUMERICAL, _CATEGORICAL)).all() or (inner != (left != -1)).any():
        return "has nodes of an unknown type"
    children = np.concatenate([left[inner], right[inner]])
    # Each node but the root has one parent, so a walk from the root ends.
    if len(children) and (children.min() < 1 or children.max() >= count):
        return "has nodes without children"
    if len(np.unique(children)) != len(children):
        return "has nodes with two parents"
    if inner.any() and (split[inner].min() < 0 or split[inner].max() >= n_features):
        return f"tests a feature outside of the {n_features} that the model has"
    if not np.isin(tests[types == _NUMERICAL], _COMPARISONS).all():
        return "has an unknown comparison"
    return _problem_of_lists(tree, inner, types == _CATEGORICAL, shape)


def _problem_of_lists(tree: Any, inner: np.ndarray, categorical: np.ndarray, shape: list[int]) -> str:  # noqa: ANN401
    """Return what is wrong with the leaves' vectors and the lists of categories, or an empty text."""
    # A leaf with one value has an empty vector; FIL would read one that is not.
    lengths = np.where(inner | (shape == [1, 1]), 0, shape[1])
    begin, end, problem = _ranges(tree, "leaf_vector", len(inner))
    if not problem and (end - begin != lengths).any():
        problem = "has a leaf_vector of another length"
    if problem:
        return problem
    begin, end, problem = _ranges(tree, "category_list", len(inner))
    if not problem and (end != begin)[~categorical].any():
        problem = "has a category_list at a node without categories"
    if not problem and (tree.get_field("category_list") >= _CATEGORIES).any():
        problem = (
            f"has a category of {_CATEGORIES:,} or above, but float32 cannot represent every integer there"
        )
    return problem


def _ranges(tree: Any, name: str, count: int) -> tuple[np.ndarray, np.ndarray, str]:  # noqa: ANN401 - no types
    """Return begin and end of each node's list, and what is wrong with them."""
    begin, end = (tree.get_field(f"{name}_{part}").astype(np.int64) for part in ("begin", "end"))
    if len(begin) != count or len(end) != count:
        return begin, end, f"has no {name} for each node"
    if (begin < 0).any() or (end < begin).any() or (end > len(tree.get_field(name))).any():
        return begin, end, f"has a {name} that ends outside of it"
    return begin, end, ""
