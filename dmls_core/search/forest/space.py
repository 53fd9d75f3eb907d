"""Partition a forest's space into what one forest covers and what needs a forest for each value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from dmls_core.models.cluster import ShardedMatrix
from dmls_core.search.task import SearchTask, Space
from dmls_core.spec.definitions import NONE, Choice, Hyperparameter, Range, Scalar

TREES = "n_estimators"

_PRUNING = ("max_depth", "min_samples_split", "min_impurity_decrease")
"""Hyperparameters that only stop a tree: scikit-learn's depth-first builder checks them before it searches
for a node's best split or once it has found it, and never chooses another split for them."""

_COVERED: Mapping[str, tuple[str, ...]] = {"cpu": _PRUNING, "gpu": _PRUNING[:2]}
"""Device -> pruning hyperparameters that a grown tree covers. cuML's trees record rows but no impurity of
nodes. They grow level by level, and a node's draw of columns depends on the number of nodes split before it,
so no draw depends on the depth limit."""

_SIZE_POINTS = 10
"""Maximum number of forest sizes of a range that are scored."""

_LIMIT_POINTS = {1: 20, 2: 6, 3: 4}
"""Number of searched pruning hyperparameters -> maximum number of scored values of each range."""


@dataclass(frozen=True, slots=True)
class PartitionedSpace:
    """The parts of a forest's space.

    Attributes:
        structural: hyperparameters that need a forest for each value; the sampler suggests the searched ones.
        sizes: numbers of trees that are scored, ascending; a forest grows to the last one.
        axes: searched pruning hyperparameter -> the values that are scored.
        limits: every combination of these, in the order of a surface; a single empty one if there are none.
        least_restrictive: the values to grow with, so that all others are prunings of the grown forest.
    """

    structural: Space
    sizes: tuple[int, ...]
    axes: Mapping[str, tuple[Scalar, ...]]
    limits: tuple[Mapping[str, Scalar], ...]
    least_restrictive: Mapping[str, Scalar]

    @property
    def sizes_searched(self) -> bool:
        """Whether the number of trees is searched."""
        return TREES not in self.structural.fixed

    def growth_params(self, params: Mapping[str, Scalar], trees: int) -> dict[str, Scalar]:
        """Return the hyperparameters to grow a forest with."""
        return {**self.structural.fixed, **params, **self.least_restrictive, TREES: trees}


def structural(space: Space, engine: str) -> Space:
    """Return the part of a space that needs a forest for each of its values.

    Pruning is exact for trees that grow depth first or level by level and are not pruned afterwards. With
    ``max_leaf_nodes`` or ``ccp_alpha``, every hyperparameter but the number of trees is therefore structural;
    on cuML also with class weights and without bootstrap, since the weight of a node's rows is unknown then.
    """
    limits: dict[str, Scalar] = {"max_leaf_nodes": NONE, "ccp_alpha": 0.0}
    if engine == "gpu" and not _always(space, "bootstrap", True):
        limits["class_weight"] = NONE
    plain = all(_always(space, name, default) for name, default in limits.items())
    covered = {TREES, *(_COVERED[engine] if plain else ())}
    return Space({k: v for k, v in space.searched.items() if k not in covered}, space.fixed)


def _always(space: Space, name: str, default: Scalar) -> bool:
    """Return whether a hyperparameter has its default value in all of a space."""
    return name not in space.searched and bool(space.fixed.get(name, default) == default)


def partition_space(task: SearchTask, space: Space) -> PartitionedSpace:
    """Partition ``space``; see ``structural``."""
    split = structural(space, task.engine.device)
    pruning = [name for name in _PRUNING if name in space.searched and name not in split.searched]
    points = _LIMIT_POINTS.get(len(pruning), 1)
    axes = {name: axis(space.searched[name], points) for name in pruning}
    limits = tuple(dict(zip(axes, values, strict=True)) for values in product(*axes.values()))
    rows = len(task.truth)
    if isinstance(task.features, ShardedMatrix):  # a tree grows on the rows of one node
        rows //= task.features.cluster.nodes
    fixed = dict(split.fixed)
    if TREES in space.searched:
        tree_counts = axis(space.searched[TREES], _SIZE_POINTS)
        sizes = tuple(sorted({int(value) for value in tree_counts}))
    else:
        sizes = (int(task.engine.effective(task.model, fixed)[TREES]),)
        fixed[TREES] = sizes[0]
    least_restrictive = {
        name: min(values, key=lambda value: restrictiveness(name, value, rows))
        for name, values in axes.items()
    }
    return PartitionedSpace(Space(split.searched, fixed), sizes, axes, limits, least_restrictive)


def restrictiveness(name: str, value: Scalar, rows: int) -> float:
    """Return a number that is larger the earlier a tree on ``rows`` rows stops."""
    if name == "max_depth":
        return -math.inf if value == NONE else -float(value)
    if name == "min_samples_split" and isinstance(value, float):
        return float(max(2, math.ceil(value * rows)))
    return float(value)


def axis(hyperparameter: Hyperparameter, points: int) -> tuple[Scalar, ...]:
    """Return at most ``points`` values of a range, including both ends; all values of a choice."""
    if isinstance(hyperparameter, Choice):
        return tuple(hyperparameter.values)
    size = hyperparameter.size
    if size is not None and size <= points:
        return tuple(hyperparameter.min + number * (hyperparameter.step or 1) for number in range(size))
    if hyperparameter.log:
        points_on_scale = np.geomspace(hyperparameter.min, hyperparameter.max, points)
        inner = [float(value) for value in points_on_scale[1:-1]]
        if hyperparameter.integer:
            inner = [round(value) for value in inner]
        return tuple(dict.fromkeys((hyperparameter.min, *inner, hyperparameter.max)))
    return _even(hyperparameter, size, points)


def _even(hyperparameter: Range, size: int | None, points: int) -> tuple[Scalar, ...]:
    if size is None:
        return tuple(float(value) for value in np.linspace(hyperparameter.min, hyperparameter.max, points))
    steps = sorted({round(value) for value in np.linspace(0, size - 1, points)})
    return tuple(hyperparameter.min + step * (hyperparameter.step or 1) for step in steps)
