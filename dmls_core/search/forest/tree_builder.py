"""Grow further trees of a scikit-learn forest, without the checks that its estimators repeat for each tree.

On few rows these checks take several times longer than the trees. Builder, splitter and criterion are
scikit-learn's, but not its public API: one tree of each kind of forest is compared with the tree that the
forest itself has grown. If they differ, the forest grows all of its trees.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dmls_core.search.forest.tree_pruning import Tree

DRAWN = np.iinfo(np.int32).max
"""Upper bound of the seeds that scikit-learn draws for trees."""

AHEAD = 2
"""Trees per thread that grow or wait at once; more would only take memory."""

Result = TypeVar("Result")

_own = threading.local()

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
    def of(cls, forest: Any, features: NDArray[np.float32], target: NDArray[Any]) -> TreeBuilder | None:  # noqa: ANN401
        """Return the builder of a forest with two trees; ``None`` if it must grow its trees itself."""
        template = forest.estimators_[0]
        plain = template.max_leaf_nodes is None and template.ccp_alpha == 0
        if not plain or not np.isfinite(features.sum(dtype=np.float64)):
            return None
        codes = np.unique(target, return_inverse=True)[1] if hasattr(template, "classes_") else target
        builder = cls(forest, features, np.ascontiguousarray(codes.reshape(-1, 1), np.float64))
        weights = getattr(forest, "class_weight", None)
        kind = str((type(forest), template.criterion, forest.bootstrap, weights))
        if kind not in _verified:
            _verified[kind] = builder.matches_scikit_learn()
        return builder if _verified[kind] else None

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
        return [int(seed) for seed in generator.randint(DRAWN, size=last)[first:]]

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
            if len(waiting) == AHEAD * threads:
                yield waiting.popleft().result()
            waiting.append(pool.submit(_build_then, builder, seed, then))
        while waiting:
            yield waiting.popleft().result()


def _seeded(seed: int) -> np.random.RandomState:
    """Return this thread's generator, reseeded: creating a new one takes ten times longer."""
    if not hasattr(_own, "generator"):
        _own.generator = np.random.RandomState()
    generator: np.random.RandomState = _own.generator
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
