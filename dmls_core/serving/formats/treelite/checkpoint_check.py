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
    # A leaf with one value has an empty vector; FIL would read one that is not.
    length = 0 if shape == [1, 1] else shape[1]
    return _problem_of_lists(tree, "leaf_vector", ~inner, length) or _problem_of_lists(
        tree, "category_list", types == _CATEGORICAL, None
    )


def _problem_of_lists(tree: Any, name: str, used: np.ndarray, length: int | None) -> str:  # noqa: ANN401
    """Return what is wrong with the lists of the nodes in ``used``, each of ``length`` values if given."""
    if not used.any():
        return ""
    begin, end = (tree.get_field(f"{name}_{part}").astype(np.int64) for part in ("begin", "end"))
    if len(begin) != len(used) or len(end) != len(used):
        return f"has no {name} for each node"
    begin, end = begin[used], end[used]
    if (begin < 0).any() or (end < begin).any() or (end > len(tree.get_field(name))).any():
        return f"has a {name} that ends outside of it"
    return f"has a {name} of another length" if length is not None and (end - begin != length).any() else ""
