"""Grow trees of scikit-learn's forests one by one, and prune them to the trees of smaller limits."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dmls_core.search.forest.scoring import Bins
from dmls_core.search.forest.space import restrictiveness
from dmls_core.spec.definitions import Direction, Scalar

_EPSILON = float(np.finfo(np.double).eps)
"""Number that scikit-learn adds to a split's gain before comparing it with ``min_impurity_decrease``."""

_LEAF = -1
_NO_FEATURE = -2
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
        remaining = (weight[down] * impurity[down] + weight[up] * impurity[up]) / weight[inner]
        gains[inner] = weight[inner] / weight[0] * (impurity[inner] - remaining)
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
                stopped |= self.gains[:, None] + _EPSILON < bounds
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
    grown = Nodes.of(tree)
    stops = grown.stops([limits], rows)[:, 0]
    leaf_of = grown.pruned_leaves([limits], rows)[:, 0]
    kept_nodes = np.flatnonzero(leaf_of == np.arange(len(leaf_of)))
    new_position = np.full(len(leaf_of), _LEAF)
    new_position[kept_nodes] = np.arange(len(kept_nodes))
    state = tree.__getstate__()
    nodes = state["nodes"][kept_nodes].copy()
    leaf = stops[kept_nodes] | (nodes["left_child"] == _LEAF)
    for side in ("left_child", "right_child"):
        nodes[side] = np.where(leaf, _LEAF, new_position[nodes[side]])
    nodes["feature"][leaf] = _NO_FEATURE
    nodes["threshold"][leaf] = _NO_FEATURE
    if bins:
        nodes["threshold"] = bins.decode(nodes["feature"], nodes["threshold"])
    smaller = type(tree)(tree.n_features, np.asarray(tree.n_classes, dtype=np.intp), tree.n_outputs)
    smaller.__setstate__(
        {
            "max_depth": int(grown.depths[kept_nodes].max()),
            "node_count": len(kept_nodes),
            "nodes": nodes,
            "values": state["values"][kept_nodes].copy(),
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


_DRAWN = np.iinfo(np.int32).max
"""Upper bound of the seeds that scikit-learn draws for trees."""

_AHEAD = 2
"""Trees per thread that grow or wait at once; more would only take memory."""

Result = TypeVar("Result")

_thread_state = threading.local()

_verified: dict[str, bool] = {}
"""Kind of forest -> whether a tree that grew here equals scikit-learn's."""


@dataclass(frozen=True, slots=True)
class TreeBuilder:
    """Grows further trees of a forest fitted on ``features``, with at least one tree.

    ``target`` is (n_rows, 1) float64: class codes from 0, or values.
    """

    forest: Any
    features: NDArray[np.float32]
    target: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        forest: Any,  # noqa: ANN401 - scikit-learn is not typed
        features: NDArray[np.float32],
        target: NDArray[Any],
        *,
        weighted: bool = False,
    ) -> TreeBuilder | None:
        """Return the builder of a forest with ``trees_before_builder`` trees; ``None`` if it is unusable."""
        template = forest.estimators_[0]
        plain = template.max_leaf_nodes is None and template.ccp_alpha == 0
        if not plain or not np.isfinite(features.sum(dtype=np.float64)):
            return None
        codes = np.unique(target, return_inverse=True)[1] if hasattr(template, "classes_") else target
        builder = cls(forest, features, np.ascontiguousarray(codes.reshape(-1, 1), np.float64))
        key = _builder_key(forest, weighted=weighted)
        if key not in _verified:
            _verified[key] = builder.matches_scikit_learn()
        return builder if _verified[key] else None

    def matches_scikit_learn(self) -> bool:
        """Return whether the builder grows the forest's second tree identically."""
        try:
            tree, _ = self.grow(self.seeds(1, 2)[0])
        except (ImportError, AttributeError, TypeError, ValueError):
            return False
        return trees_equal(tree, self.forest.estimators_[1].tree_)

    def seeds(self, first: int, last: int) -> list[int]:
        """Return the seeds of the trees from ``first`` up to ``last``."""
        generator = np.random.RandomState(self.forest.random_state)
        return [int(seed) for seed in generator.randint(_DRAWN, size=last)[first:]]

    def bootstrap_counts(self, seed: int) -> NDArray[np.int64] | None:
        """Return how often a tree draws each row; ``None`` without bootstrap."""
        if not self.forest.bootstrap:
            return None
        from sklearn.ensemble import _forest

        rows = len(self.features)
        weights, size = self.forest._sample_weight, self.forest._n_samples_bootstrap
        drawn = _forest._generate_sample_indices(_seeded(seed), rows, size, weights)
        return np.bincount(drawn, minlength=rows)

    def grow(self, seed: int) -> tuple[Tree, NDArray[np.int64] | None]:
        """Grow one tree; return it, and how often it has drawn each row."""
        from sklearn.tree import _classes

        template = self.forest.estimators_[0]
        counts = self.bootstrap_counts(seed)
        weights = self._weights(counts)
        rows = len(self.features)
        if self._classes:
            criterion = _classes.CRITERIA_CLF[template.criterion](1, np.array([self._classes], np.intp))
        else:
            criterion = _classes.CRITERIA_REG[template.criterion](1, rows)
        leaf = _count(template.min_samples_leaf, rows, least=1)
        split = max(_count(template.min_samples_split, rows, least=2), 2 * leaf)
        lightest = template.min_weight_fraction_leaf * (rows if weights is None else weights.sum())
        splitter = _classes.DENSE_SPLITTERS[template.splitter](
            criterion, template.max_features_, leaf, lightest, _seeded(seed), None
        )
        depth = np.iinfo(np.int32).max if template.max_depth is None else template.max_depth
        tree = _classes.Tree(self.features.shape[1], np.array([max(1, self._classes)], np.intp), 1)
        builder = _classes.DepthFirstTreeBuilder(
            splitter, split, leaf, lightest, depth, template.min_impurity_decrease
        )
        builder.build(tree, self.features, self.target, weights, None)
        return tree, counts

    @property
    def _classes(self) -> int:
        return int(getattr(self.forest.estimators_[0], "n_classes_", 0))

    def _weights(self, counts: NDArray[np.int64] | None) -> NDArray[np.float64] | None:
        if counts is None:
            weights: NDArray[np.float64] | None = self.forest._sample_weight
            return weights
        if getattr(self.forest, "class_weight", None) != "balanced_subsample":
            return counts.astype(np.float64)
        drawn = np.bincount(self.target[:, 0].astype(np.intp), counts, minlength=self._classes)
        present = drawn > 0
        each = np.zeros(self._classes)
        each[present] = drawn.sum() / (present.sum() * drawn[present])
        return np.asarray(counts * each[self.target[:, 0].astype(np.intp)])


def trees_before_builder(forest: Any, *, weighted: bool = False) -> int:  # noqa: ANN401 - scikit-learn
    """Return how many trees a forest grows itself: a template, and one to compare if its kind is new."""
    return 1 if _verified.get(_builder_key(forest, weighted=weighted)) else 2


def _builder_key(forest: Any, *, weighted: bool) -> str:  # noqa: ANN401 - scikit-learn is not typed
    weights = getattr(forest, "class_weight", None)
    return str((type(forest), forest.criterion, forest.bootstrap, weights, weighted))


def build_trees(
    builder: TreeBuilder,
    seeds: Sequence[int],
    threads: int,
    then: Callable[[Tree, NDArray[np.int64] | None], Result],
) -> Iterator[Result]:
    """Grow trees on several threads; yield the results of ``then``, in the order of the seeds.

    ``then`` is called in the thread that grew the tree, with the output of ``TreeBuilder.grow``.
    """
    if threads == 1:
        yield from (_build_then(builder, seed, then) for seed in seeds)
        return
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for seed in seeds:
            if len(waiting) == _AHEAD * threads:
                yield waiting.popleft().result()
            waiting.append(pool.submit(_build_then, builder, seed, then))
        while waiting:
            yield waiting.popleft().result()


def _seeded(seed: int) -> np.random.RandomState:
    """Return this thread's generator, reseeded: creating a new one takes ten times longer."""
    if not hasattr(_thread_state, "generator"):
        _thread_state.generator = np.random.RandomState()
    generator: np.random.RandomState = _thread_state.generator
    generator.seed(seed)
    return generator


def _build_then(
    builder: TreeBuilder, seed: int, then: Callable[[Tree, NDArray[np.int64] | None], Result]
) -> Result:
    return then(*builder.grow(seed))


def trees_equal(one: Tree, other: Tree) -> bool:
    """Return whether two trees are equal in every node."""
    mine, theirs = one.__getstate__(), other.__getstate__()
    nodes, others = mine["nodes"], theirs["nodes"]
    return bool(
        len(nodes) == len(others)
        and all(np.array_equal(nodes[name], others[name]) for name in nodes.dtype.names)
        and np.array_equal(mine["values"], theirs["values"])
    )


def _count(value: float, rows: int, *, least: int) -> int:
    """Return a number of rows that may be given as a share of ``rows``."""
    if isinstance(value, (int, np.integer)):
        return int(value)
    return max(least, int(np.ceil(value * rows)))
